#!/usr/bin/env bash
# Start a SLURM on this machine for tests: as root, without systemd, cgroups, accounting or real
# GPUs.    start.sh DIR CONTROLLER_PORT NODE_PORT...    then export SLURM_CONF=DIR/slurm.conf
#
# With one port, the node is this machine. With several, the nodes are named node1, node2, ...; each
# has its host name in a namespace of its own, and DIR/scratch is another folder on each of them.
set -euo pipefail
dir=$1 controller=$2
shift 2
host=$(hostname -s)
mkdir -p "$dir/state" "$dir/dev" "$dir/scratch"

# munge vouches for every message; its daemon may run already or be started by another cluster, and
# refuses folders others may write
exec 9> /tmp/rigor-munge.lock
flock 9
if ! munge --no-input >/dev/null 2>&1; then
  mkdir -p /run/munge /var/log/munge /var/lib/munge /etc/munge
  [ -s /etc/munge/munge.key ] || head -c 1024 /dev/urandom > /etc/munge/munge.key
  chown -R munge:munge /run/munge /var/log/munge /var/lib/munge /etc/munge
  chmod 400 /etc/munge/munge.key
  chmod 755 /run/munge
  runuser -u munge -- munged 9>&-
fi
exec 9>&-

# GPUs must be character devices, or CUDA_VISIBLE_DEVICES is never set; these are /dev/null
for i in 0 1; do
  [ -c "$dir/dev/nvidia$i" ] || mknod "$dir/dev/nvidia$i" c 1 3
done

names=() nodes=""
for port in "$@"; do
  name=$host
  [ $# = 1 ] || name=node$((${#names[@]} + 1))
  names+=("$name")
  nodes+="NodeName=$name NodeAddr=127.0.0.1 Port=$port CPUs=8 RealMemory=64000 Gres=gpu:2"$'\n'
done
all=$(IFS=,; echo "${names[*]}")
cat > "$dir/gres.conf" <<END
AutoDetect=off
NodeName=$all Name=gpu File=$dir/dev/nvidia[0-1]
END

cat > "$dir/slurm.conf" <<END
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$controller
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CryptoType=crypto/munge
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool-%n
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd-%n.pid
SlurmctldLogFile=$dir/slurmctld.log
SlurmdLogFile=$dir/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
# at once, not when it is convenient
SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
ReturnToService=2
MpiDefault=none
SwitchType=switch/none
SlurmdParameters=config_overrides
GresTypes=gpu
JobRequeue=1
KillWait=5
# the log says when it warns of a time limit
SlurmctldDebug=debug
MaxArraySize=1001
$nodes
PartitionName=gpu Nodes=$all Default=YES State=UP PriorityTier=10 PreemptMode=OFF
PartitionName=spare Nodes=$all State=UP PriorityTier=1 PreemptMode=REQUEUE GraceTime=20
END
export SLURM_CONF=$dir/slurm.conf
slurmctld -c
for name in "${names[@]}"; do
  "$(dirname "$0")/node.sh" "$dir" "$name"
done
for _ in $(seq 100); do
  states=$(sinfo --noheader --partition=gpu --Node --format=%T 2>/dev/null | sort -u)
  [ "$states" = idle ] && exit 0
  sleep 0.1
done
echo "a node does not come up; see the logs of slurmctld and slurmd in $dir" >&2
exit 1
