#!/usr/bin/env bash
# Stop the SLURM that start.sh has started in DIR.    stop.sh DIR
for daemon in slurmd slurmctld; do
  [ -s "$1/$daemon.pid" ] && kill "$(cat "$1/$daemon.pid")"
done
exit 0
