#!/usr/bin/env bash
# Start the slurmd of one node of the cluster in DIR.    node.sh DIR NAME
set -euo pipefail
dir=$1 name=$2
export SLURM_CONF=$dir/slurm.conf
[ "$name" != "$(hostname -s)" ] || exec slurmd
mkdir -p "$dir/scratch-$name"
unshare --uts --mount bash -c '
  hostname "$2" && mount --bind "$1/scratch-$2" "$1/scratch" && exec slurmd -N "$2"
' - "$dir" "$name"
