#!/usr/bin/env bash
# Start a SLURM of one node, this machine, for tests: as root, without systemd, cgroups, accounting
# or real GPUs.    start.sh DIR CONTROLLER_PORT NODE_PORT    then export SLURM_CONF=DIR/slurm.conf
set -euo pipefail
dir=$1 controller=$2 node=$3
host=$(hostname -s)
mkdir -p "$dir/state" "$dir/spool" "$dir/dev"

# munge vouches for every message; its daemon may run already, and refuses folders others may write
if ! munge --no-input >/dev/null 2>&1; then
  mkdir -p /run/munge /var/log/munge /var/lib/munge /etc/munge
  [ -s /etc/munge/munge.key ] || head -c 1024 /dev/urandom > /etc/munge/munge.key
  chown -R munge:munge /run/munge /var/log/munge /var/lib/munge /etc/munge
  chmod 400 /etc/munge/munge.key
  chmod 755 /run/munge
  runuser -u munge -- munged
fi

# GPUs must be character devices, or CUDA_VISIBLE_DEVICES is never set; these are /dev/null
for i in 0 1; do
  [ -c "$dir/dev/nvidia$i" ] || mknod "$dir/dev/nvidia$i" c 1 3
done
cat > "$dir/gres.conf" <<END
AutoDetect=off
NodeName=$host Name=gpu File=$dir/dev/nvidia[0-1]
END

cat > "$dir/slurm.conf" <<END
ClusterName=test
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$controller
SlurmdPort=$node
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CryptoType=crypto/munge
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/slurmd.pid
SlurmctldLogFile=$dir/slurmctld.log
SlurmdLogFile=$dir/slurmd.log
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
NodeName=$host NodeAddr=127.0.0.1 CPUs=8 RealMemory=16000 Gres=gpu:2 State=UNKNOWN
PartitionName=gpu Nodes=$host Default=YES State=UP PriorityTier=10 PreemptMode=OFF
PartitionName=spare Nodes=$host State=UP PriorityTier=1 PreemptMode=REQUEUE GraceTime=20
END
export SLURM_CONF=$dir/slurm.conf
slurmctld -c
slurmd
for _ in $(seq 100); do
  [ "$(sinfo --noheader --partition=gpu --format=%T 2>/dev/null)" = idle ] && exit 0
  sleep 0.1
done
echo "the node does not come up; see $dir/slurmctld.log and $dir/slurmd.log" >&2
exit 1
