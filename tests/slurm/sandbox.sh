#!/usr/bin/env bash
# tests/slurm/sandbox.sh start FOLDER NODES | stop FOLDER | crash FOLDER NODE | cut FOLDER NODE
#
# A real Slurm of NODES nodes on this machine: one controller, one daemon a node, one munge daemon of its own, all under
# FOLDER (a short path: it holds sockets), and no service manager. A node has its own host name, its own /dev/shm and its own
# network namespace on a bridge, so that ranks see nodes as on a cluster, shared memory ends at a node, and a node has ports of
# its own (MPI's connections between 384 ranks are 73,000, one address has 28,000); all share the cores. Sizes of nodes are
# declared, not real, as are their four GPUs (harmless devices). Partitions: main, and short, which takes ten minutes and one
# node. `crash` ends a node's processes, its daemons too, at once; `cut` takes its network away. Needs root.
#
# SANDBOX_NET (10.217): two bytes of addresses that nothing else here uses. SANDBOX_NAP_US (0): ranks that wait for others sleep so
# long between polls, which many ranks a core need. SANDBOX_LOST_S (300): a node that does not answer for so long is lost, and a job
# put back in the queue waits as long; less than a launch takes on a busy machine breaks it.
set -euo pipefail

die() { echo "sandbox: $*" >&2 && exit 1; }
[[ $# -ge 2 ]] || die "usage: start FOLDER NODES | stop FOLDER | crash FOLDER NODE | cut FOLDER NODE"
action=$1 dir=$(realpath -m "$2") nodes=${3:-0}
net=${SANDBOX_NET:-10.217} nap=${SANDBOX_NAP_US:-0} lost=${SANDBOX_LOST_S:-300}
bridge=mts${net/./-} port=$((6600 + ${net#*.})) # sandboxes of different addresses do not meet
export SLURM_CONF=$dir/slurm.conf

runs() { # PIDFILE NAME
    local pid
    pid=$(cat "$1" 2>/dev/null) && [[ -n $pid && $(cat "/proc/$pid/comm" 2>/dev/null) == "$2" ]]
}
soon() { # SECONDS COMMAND...
    local end=$((SECONDS + $1))
    until "${@:2}"; do
        [[ $SECONDS -lt $end ]] || return 1
        sleep 0.1
    done
}
all_idle() { [[ $(sinfo -h -N -p main -o '%N %T' 2>/dev/null | awk '$2 == "idle"' | wc -l) == "$nodes" ]]; }

address() { echo "$net.$((1 + $1 / 250)).$((1 + $1 % 250))"; }
hardware() { printf '02:00:00:00:%02x:%02x' $(($1 / 256)) $(($1 % 256)); }
# Nodes know each other's hardware addresses: found out, they would overflow the kernel's one table of neighbours.
open_net() {
    local i
    for ((i = 1; i <= nodes; i++)); do
        echo "neigh replace $(address $i) lladdr $(hardware $i) dev eth0 nud permanent"
    done >"$dir/neighbours"
    ip link add "$bridge" type bridge
    ip addr add "$net.0.1/16" dev "$bridge"
    ip link set "$bridge" up
    for ((i = 1; i <= nodes; i++)); do
        ip netns add "$bridge-$i"
        ip link add "$bridge.$i" type veth peer name eth0 address "$(hardware $i)" netns "$bridge-$i"
        ip link set "$bridge.$i" master "$bridge" up
        ip -n "$bridge-$i" link set lo up
        ip -n "$bridge-$i" addr add "$(address $i)/16" dev eth0
        ip -n "$bridge-$i" link set eth0 up
        ip -n "$bridge-$i" -batch "$dir/neighbours"
    done
}
# With every process of the nodes.
close_net() {
    local name pid
    for name in $(ip netns list | awk '{ print $1 }' | grep "^$bridge-"); do
        for pid in $(ip netns pids "$name"); do kill -9 "$pid" || true; done
        ip link del "$bridge.${name#"$bridge"-}" || true
        ip netns del "$name"
    done
    ip link del "$bridge" || true
}

# Credentials outlive a launch of many ranks on few cores. The tree fence of Slurm 22.05's PMIx lets ranks out of MPI_Init
# while others are in it; the ring does not.
write_conf() {
    local i
    cat >"$SLURM_CONF" <<END
ClusterName=sandbox
SlurmctldHost=$(hostname)($net.0.1)
SlurmctldPort=$port
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$dir/munge.socket,cred_expire=$lost
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
TaskProlog=$dir/task_prolog
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/builtin
SchedulerParameters=batch_sched_delay=0,sched_interval=2
SlurmdParameters=config_overrides
ReturnToService=2
MessageTimeout=100
SlurmdTimeout=$lost
KillWait=10
MinJobAge=3600
EnforcePartLimits=ALL
GresTypes=gpu
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/%n.pid
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/spool/%n
SlurmctldLogFile=$dir/log/slurmctld
SlurmdLogFile=$dir/log/%n
TmpFS=$dir/tmp/%n
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
PartitionName=short Nodes=ALL MaxTime=10 MaxNodes=1 State=UP
END
    for ((i = 1; i <= nodes; i++)); do
        echo "NodeName=n$i NodeHostname=n$i NodeAddr=$(address $i) Port=6818 Sockets=4 CoresPerSocket=72 ThreadsPerCore=1 RealMemory=1000 Gres=gpu:4"
    done >>"$SLURM_CONF"
    echo "PMIxCollFence=ring" >"$dir/mpi.conf"
    for i in null zero full urandom; do echo "Name=gpu File=/dev/$i"; done >"$dir/gres.conf"
}

# Every task: transports that work without a network, and a priority below the daemons'.
write_prolog() {
    {
        echo '#!/bin/sh'
        echo 'echo export OMPI_MCA_mpi_yield_when_idle=1'
        echo 'echo export OMPI_MCA_pml=ob1'
        echo 'echo export OMPI_MCA_btl=self,vader,tcp'
        echo 'echo export OMPI_MCA_btl_vader_single_copy_mechanism=none'
        echo 'echo export OMPI_MCA_btl_tcp_if_include=eth0'
        [[ $nap == 0 ]] || echo "echo export LD_PRELOAD=$dir/nap.so"
        echo 'renice -n 10 -p "$SLURM_TASK_PID" >/dev/null 2>&1'
        echo 'exit 0'
    } >"$dir/task_prolog"
    chmod 755 "$dir/task_prolog"
    [[ $nap == 0 ]] || cc -O2 -shared -fPIC -xc -o "$dir/nap.so" - <<END
#include <time.h>
static int nap(long us)
{
    struct timespec t = {us / 1000000, us % 1000000 * 1000};
    return nanosleep(&t, 0);
}
int sched_yield(void) { return nap($nap); }
int usleep(unsigned us) { return nap(us < $nap ? $nap : us); }
END
}

start_node() {
    mkdir -p "$dir/spool/n$1" "$dir/tmp/n$1"
    nsenter "--net=/run/netns/$bridge-$1" unshare --uts --ipc --mount --propagation private sh -c '
        hostname "$1" && mount -t tmpfs -o mode=1777,size=1g shm /dev/shm && exec slurmd -N "$1"' \
        sh "n$1"
}

start() {
    local i
    [[ $nodes =~ ^[1-9][0-9]*$ ]] || die "how many nodes: '$nodes'?"
    [[ $EUID == 0 ]] || die "needs root"
    [[ ${#dir} -le 40 ]] || die "$dir: too long for sockets"
    ! ip link show "$bridge" >/dev/null 2>&1 || die "there is a sandbox already (its bridge is $bridge)"
    mkdir -p "$dir"/{state,spool,log,tmp}
    chmod 755 "$dir"
    write_conf
    write_prolog
    open_net
    (umask 077 && head -c 1024 /dev/urandom >"$dir/munge.key")
    munged --key-file "$dir/munge.key" --socket "$dir/munge.socket" --pid-file "$dir/munged.pid" \
        --log-file "$dir/log/munged" --seed-file "$dir/munge.seed" --num-threads 4
    slurmctld -f "$SLURM_CONF"
    for ((i = 1; i <= nodes; i++)); do start_node "$i"; done
    soon 120 all_idle || { sinfo -N -l >&2; die "not all nodes came up; see $dir/log"; }
}

stop() {
    local pid p
    [[ -e $dir ]] || return 0
    for p in slurmctld munged; do
        if runs "$dir/$p.pid" $p; then
            pid=$(cat "$dir/$p.pid")
            kill "$pid"
            soon 10 eval "! runs $dir/$p.pid $p" || kill -9 "$pid"
        fi
    done
    close_net 2>/dev/null
    rm -rf "$dir"
}

kill_node() { # NAME
    local pid
    for pid in $(ip netns pids "$bridge-${1#n}"); do kill -9 "$pid" 2>/dev/null || true; done
}

case $action in
start) start ;;
stop) stop ;;
crash) kill_node "$3" ;;
cut) ip -n "$bridge-${3#n}" link set eth0 down ;;
*) die "no action '$action'" ;;
esac
