# test: timeout=240 alone
# `moetitan submit` on a real Slurm of two nodes: eight ranks with four GPUs a node; three jobs of a chain, two of them ended by a
# signal, with the losses of one long job, to the bit; scancel leaves a valid checkpoint, and ends the chain; what Slurm refuses
# leaves nothing behind.
source tests/check.sh
source tests/slurm/cluster.sh
source tests/train/tiny.sh
tiny_setup
cluster 2
cd "$work" || exit

# eight ranks: half as many experts as ranks would not do
options=(train.global_batch=8 train.micro_batch=1 train.eval_interval=0 model.experts=8 mesh.ep=4 device.workers=1 ckpt.interval=0)
submit() { # ARGUMENTS...   its first job in $job
    run "$MT_BIN" submit tiny.yaml "${options[@]}" --site "$root/slurm/sites/generic.yaml" "$@"
    job=$(sed -n 's/^job \([0-9]*\):.*/\1/p' "$work/out")
}
shown() { cp "$1" "$work/out" 2>/dev/null; } # a log, for what a failed check prints
found() { grep -o '"\(step\|loss\|grad_norm\|expert_balance\)": [^,}]*' "$1/metrics.jsonl"; }
same_bits() { cmp <(found "$1") <(found "$2") >"$work/out" 2>&1 && [[ $(found "$1" | wc -l) -ge $3 ]]; }
ended_with() { grep -q "\"code\":[[:space:]]*$2," "run$1/jobs/$3/end.json"; } # RUN CODE JOB

# one long job, and what its folder keeps
submit --nodes 2 --gres gpu:4 --time 10m --job-name "one job" --chain none run.dir=run1 train.steps=60
check "submitted" ended 0
check "submitted: where its log is" says "^job [0-9]+: run1/jobs/[0-9]+\.log$"
one=$job
check "the job has two nodes, eight tasks, four GPUs a node" \
    soon 20 bash -c "scontrol show job $one | tr ' ' '\n' | grep -cxE 'NumNodes=2|NumTasks=8|TresPerNode=gres:gpu:4|JobName=one' | grep -qx 4"
check "it ends" soon 120 over "$one"
shown "run1/jobs/$one.log"
check "and well" in_state "$one" COMPLETED
check "its log says how it ended" says "^job $one ended: "
check "its log, script, environment, configuration and versions are kept" \
    test -s "run1/jobs/$one/log" -a -s "run1/jobs/$one/script" -a -s "run1/jobs/$one/environment" -a -s "run1/jobs/$one/config.yaml" -a \
    -s "run1/jobs/$one/versions"
check "the versions say Slurm's" grep -q '^slurm .*[0-9]' "run1/jobs/$one/versions"
check "its end is 0" ended_with 1 0 "$one"
run "$MT_BIN" train tiny.yaml "${options[@]}" run.dir=fake train.steps=60 --fake-ranks 8
check "the same bits as ranks of one process" same_bits run1 fake 240

# a chain: each job queues the next; two signals
options+=(train.steps=60)
next() { sed -n "/^$2 /{n;s/ next//p}" "$1/jobs/chain"; } # RUN JOB
submit --nodes 2 --gres gpu:4 --time 10m run.dir=run2
first=$job
check "the chain begins" soon 30 lines run2/metrics.jsonl 5
scancel --signal=USR1 "$first"
check "its first job ends" soon 60 over "$first"
shown "run2/jobs/$first.log"
check "with 75, everything saved" ended_with 2 75 "$first"
second=$(next run2 "$first")
check "the next one was queued by it" test "$second"
at=$(wc -l <run2/metrics.jsonl)
check "and goes on" soon 60 lines run2/metrics.jsonl $((at + 5))
scancel --signal=USR1 "$second"
check "the second ends" soon 60 over "$second"
shown "run2/jobs/$second.log"
check "with 75 again" ended_with 2 75 "$second"
third=$(next run2 "$second")
check "the third ends" soon 120 over "$third"
shown "run2/jobs/$third.log"
check "having done all" in_state "$third" COMPLETED
fourth=$(next run2 "$third")
check "what it had queued is cancelled" in_state "$fourth" CANCELLED
check "there is no fifth" test -z "$(next run2 "$fourth")"
check "three jobs, the losses of one, to the bit" same_bits run1 run2 240
run "$MT_BIN" job list run2
check "a list of the chain" says "^$second +[0-9]+ +75 PREEMPTED"

# scancel: a valid checkpoint, and no further job
submit --nodes 2 --time 10m run.dir=run3 train.steps=100000
check "a long run begins" soon 30 lines run3/metrics.jsonl 5
scancel "$job"
check "cancelled" soon 60 over "$job"
shown "run3/jobs/$job.log"
step=$(basename "$(find run3/ckpt -maxdepth 1 -name 'step-????????' | sort | tail -n 1)")
check "it saved" test -n "$step"
run "$MT_BIN" ckpt verify "run3/ckpt/$step"
check "what it saved is valid" ended 0
check "its successor does not train" soon 60 over "$(next run3 "$job")"
check "nor does another" test "$(wc -l <run3/jobs/chain)" = 2
check "and nothing waits" test -z "$(squeue -h)"

# refused: Slurm's own words, and nothing is left
refused() { # WHAT WORDS ARGUMENTS...
    submit run.dir=deep/er/run4 "${@:3}"
    check "$1: exit code 2" ended 2
    check "$1: Slurm's words" says "$2"
    check "$1: no folder" test ! -e deep
    check "$1: no job" test -z "$(squeue -h)"
}
refused "a partition that there is not" 'sbatch: error: .*[Ii]nvalid partition' --nodes 2 --partition nowhere
refused "a time over the limit" 'sbatch: error: .*time limit' --nodes 1 --partition short --time 11m train.global_batch=4
refused "nodes over the limit" 'sbatch: error: .*[Nn]ode' --nodes 2 --partition short --time 5m
refused "more nodes than there are" 'sbatch: error: .*[Nn]ode' --nodes 4 train.global_batch=16
submit --nodes 2 --site nowhere.yaml
check "no such site: exit code 2" ended 2

# limits that Slurm does not enforce: such jobs would wait for ever
sed -i 's/^EnforcePartLimits=.*/EnforcePartLimits=NO/' "$SLURM_CONF" && scontrol reconfigure
refused "a time over a limit not enforced" 'would not start it, for Partition' --nodes 1 --partition short --time 11m train.global_batch=4
refused "nodes over a limit not enforced" 'would not start it, for Partition' --nodes 2 --partition short --time 5m

# jobs queued at once, each behind the one before
submit --nodes 1 --time 5m --chain dependency --jobs 3 run.dir=run5 train.steps=9 train.global_batch=4
check "three at once" test "$(grep -c '^job ' "$work/out")" = 3
check "the first does it all" soon 60 over "$job"
shown "run5/jobs/$job.log"
check "the first does it all, well" in_state "$job" COMPLETED
check "the others are cancelled" test "$(for j in $(sed 1d run5/jobs/chain | cut -d' ' -f1); do state "$j"; done | sort | uniq -c | xargs)" = "2 CANCELLED"
finish
