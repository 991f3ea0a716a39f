# cluster.sh: a real Slurm on this machine for a test, or the reason why not. Sourced after tests/check.sh. Sets SLURM_CONF; its
# files lie in $sandbox, and all of it is gone with the script.
# shellcheck shell=bash
skip() {
    echo "skipped: $*"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
}
for program in slurmctld slurmd srun sbatch munged unshare ip cc; do
    command -v $program >/dev/null ||
        skip "no $program here; on Debian: apt-get install slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge util-linux iproute2 gcc"
done
[[ $EUID == 0 ]] || skip "Slurm's daemons need the privilege of root"
unshare --net --uts --ipc --mount true 2>/dev/null || skip "nodes of their own need the privilege to make namespaces"
grep -q 'MT_HAVE_MPI 1' "$MT_BUILD/base/features.h" || skip "built without MPI (its headers were not found)"

sandbox=$(mktemp -d /tmp/mt.XXXX)
chmod 755 "$sandbox" # munge asks for it
clean() {
    trap '' INT TERM HUP # nothing that was started may stay
    "$root"/tests/slurm/sandbox.sh stop "$sandbox/s"
    rm -rf "$work" "$sandbox"
}
root=$PWD
trap clean EXIT
trap 'exit 130' INT TERM HUP
export SLURM_CONF=$sandbox/s/slurm.conf

cluster() { # NODES   with the sandbox's own settings in the environment
    local began=$SECONDS
    run "$root/tests/slurm/sandbox.sh" start "$sandbox/s" "$1"
    check "a Slurm of $1 nodes" ended 0
    [[ $rc == 0 ]] || { finish; exit 1; }
    echo "  $1 nodes after $((SECONDS - began)) s"
    srun --mpi=list 2>&1 | grep -q pmix || skip "this srun has no pmix plugin (slurm-wlm-basic-plugins)"
}
soon() { # SECONDS COMMAND...
    local end=$((SECONDS + $1))
    until "${@:2}"; do
        [[ $SECONDS -lt $end ]] || return 1
        sleep 0.2
    done
}
state() { scontrol show job "$1" 2>/dev/null | grep -o 'JobState=[A-Z_]*' | cut -d= -f2; }
in_state() { [[ $(state "$1") == "$2" ]]; }                                              # JOB STATE
over() { [[ ! $(squeue -h -j "$1" 2>/dev/null) ]]; }                                     # JOB
lines() { [[ -e $1 && $(wc -l <"$1") -ge $2 ]]; }                                        # FILE N
