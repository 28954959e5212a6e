#!/usr/bin/env bash
# Stop the SLURM that start.sh has started in DIR.    stop.sh DIR
for file in "$1"/slurmd-*.pid "$1"/slurmctld.pid; do
  [ -s "$file" ] || continue
  pid=$(cat "$file")
  # it writes into DIR until it has ended
  kill "$pid" 2>/dev/null && timeout 10 tail --sleep-interval=0.1 --pid="$pid" -f /dev/null
done
exit 0
