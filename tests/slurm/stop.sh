#!/usr/bin/env bash
# Stop the SLURM that start.sh has started in DIR.    stop.sh DIR
for daemon in slurmd slurmctld; do
  [ -s "$1/$daemon.pid" ] || continue
  pid=$(cat "$1/$daemon.pid")
  # it writes into DIR until it has ended
  kill "$pid" && timeout 10 tail --sleep-interval=0.1 --pid="$pid" -f /dev/null
done
exit 0
