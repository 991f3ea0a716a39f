# test: timeout=1800 alone
# Chains of jobs on a real Slurm of five nodes, of which three are lost on the way: by Slurm's own time limit, with notice and without;
# a node that crashes under a job that may be requeued, the batch script's node under one that may not, and a cut network. Whatever
# happens, the losses are those of a run that was left alone, to the bit.
source tests/check.sh
source tests/slurm/cluster.sh
source tests/train/tiny.sh
tiny_setup
SANDBOX_LOST_S=60 cluster 5
cd "$work" || exit

options=(train.steps=100000 train.global_batch=8 train.micro_batch=1 train.eval_interval=0 model.experts=8 mesh.ep=4 device.workers=1
    ckpt.interval=20)
submit() { # ARGUMENTS...   its first job in $job
    run "$MT_BIN" submit tiny.yaml "${options[@]}" --site "$root/slurm/sites/generic.yaml" --nodes 2 "$@"
    job=$(sed -n 's/^job \([0-9]*\):.*/\1/p' "$work/out")
    check "$*: submitted" test -n "$job"
}
next() { sed -n "/^$2 /{n;s/ next//p}" "$1/jobs/chain"; } # RUN JOB
shown() { cp "$1" "$work/out" 2>/dev/null; }
found() { grep -o '"\(step\|loss\|grad_norm\|expert_balance\)": [^,}]*' "$1/metrics.jsonl"; }
# The run goes on for some steps, is stopped for good, and is compared with one that nothing happened to.
undisturbed() { # WHAT RUN JOB
    local at steps rest
    soon 120 lines "$2/metrics.jsonl" 1
    at=$(wc -l <"$2/metrics.jsonl")
    check "$1: goes on" soon 120 lines "$2/metrics.jsonl" $((at + 25))
    rest=$(next "$2" "$3")
    [[ -z $rest ]] || scancel "$rest"
    scancel --signal=USR1 "$3"
    check "$1: stopped" soon 120 over "$3"
    shown "$2/jobs/$3.log"
    steps=$(wc -l <"$2/metrics.jsonl")
    if ! lines whole/metrics.jsonl "$steps"; then
        rm -rf whole
        run "$MT_BIN" train tiny.yaml "${options[@]}" run.dir=whole run.stop_after="$steps" ckpt.interval=0 --fake-ranks 8
    fi
    check "$1: the losses of one run, to the bit" cmp <(found "$2") <(found whole | head -n $((4 * steps)))
}

# its own limit: told in time
submit --time 2m --notice 60s run.dir=limit
first=$job
check "a limit with notice: its first job ends by itself" soon 150 over "$first"
shown "limit/jobs/$first.log"
check "a limit with notice: with 75" grep -q '"code":[[:space:]]*75' "limit/jobs/$first/end.json"
check "a limit with notice: before the limit" in_state "$first" FAILED
undisturbed "a limit with notice" limit "$(next limit "$first")"

# its own limit: killed
sed '/^#SBATCH --signal/d' "$root/slurm/generic.sbatch" >"$work/blunt.sbatch"
submit --time 1m --notice 0s --template "$work/blunt.sbatch" run.dir=killed run.time_limit=365d # nor do the ranks look at the time
first=$job
check "a limit without notice: its first job is ended" soon 180 over "$first"
check "a limit without notice: by Slurm" in_state "$first" TIMEOUT
undisturbed "a limit without notice" killed "$(next killed "$first")"

# a node is lost, the job comes back on others: Slurm notices before the ranks' own deadline
nodes() { scontrol show job "$1" | sed -n 's/^ *NodeList=//p'; }
of() { scontrol show hostnames "$(nodes "$1")" | sed -n "$2p"; } # JOB N: its N-th node
without() { [[ ! " $(scontrol show hostnames "$(nodes "$1")" | xargs) " == *" $2 "* ]]; }
back() { [[ $(scontrol show job "$1") == *" Restarts=1 "* ]] && in_state "$1" RUNNING; }
sandbox() { "$root/tests/slurm/sandbox.sh" "$1" "$sandbox/s" "$2"; }
submit --time 20m run.dir=crash run.hang_timeout=10m
check "a crash: begins" soon 120 lines crash/metrics.jsonl 30
lost=$(of "$job" 2)
sandbox crash "$lost"
check "a crash: the job comes back" soon 400 back "$job"
check "a crash: on others" without "$job" "$lost"
undisturbed "a crash" crash "$job"
check "a crash: both starts in one log" test "$(grep -c '^model ' "crash/jobs/$job.log")" = 2

# the batch script's own node is lost, and nothing may be requeued: the next job of the chain
sed 's/^#SBATCH --requeue/#SBATCH --no-requeue/' "$root/slurm/generic.sbatch" >"$work/once.sbatch"
submit --time 20m --template "$work/once.sbatch" run.dir=dead run.hang_timeout=10m
first=$job
check "a dead node: begins" soon 120 lines dead/metrics.jsonl 30
sandbox crash "$(of "$job" 1)"
check "a dead node: the job is over" soon 400 over "$first"
check "a dead node: by the node" in_state "$first" NODE_FAIL
undisturbed "a dead node" dead "$(next dead "$first")"

# the network is cut: nobody is told, the ranks' own deadline ends the job, and the next one goes on
submit --time 20m run.dir=cut run.hang_timeout=10s watchdog.save=10s
first=$job
check "a cut network: begins" soon 120 lines cut/metrics.jsonl 30
lost=$(of "$job" 2)
sandbox cut "$lost"
check "a cut network: the job is over" soon 400 over "$first"
shown "cut/jobs/$first.log"
check "a cut network: for the deadline" grep -q '"code":[[:space:]]*9' "cut/jobs/$first/end.json"
second=$(next cut "$first")
check "a cut network: the next begins" soon 400 in_state "$second" RUNNING
check "a cut network: on others" without "$second" "$lost"
undisturbed "a cut network" cut "$second"
finish
