# test: timeout=240 alone
# `moetitan sweep --slurm` on a real Slurm of two nodes: six points as an array of jobs, packed, collected; a second round of
# halving as a second array; what Slurm refuses leaves nothing behind.
source tests/check.sh
source tests/slurm/cluster.sh
source tests/train/tiny.sh
tiny_setup
cluster 2
cd "$work" || exit

site=(--site "$root/slurm/sites/generic.yaml" --nodes 1 --cpus-per-task 2 --time 10m)
sweep() { run "$MT_BIN" sweep "$@"; }
job_of() { sed -n 's/^array     job \([0-9]*\):.*/\1/p' "$work/out"; }
sql() { sqlite3 six/results.sqlite "$1"; }

cat >six.yaml <<END
extends: tiny.yaml
dir: six
set: {train.steps: 12, train.eval_interval: 0, device.workers: 1, optim.warmup_steps: 2}
grid: {optim.lr: [1e-3, 3e-3, 1e-2], shard.prefetch: [1, 2]}
metric: loss
ranks: 2
at_once: 2
slurm: {pack: 3}
END
sweep six.yaml --slurm "${site[@]}" --tasks-per-node 3
check "tasks that do not fit the runs: refused" ended 2
check "and why" says 'has 3 tasks .* its runs need 4 \(ranks times at_once\)'
sweep six.yaml --slurm "${site[@]}" --partition nowhere
check "a partition that is not there: refused" ended 2
check "in Slurm's words" says 'Slurm refused the job:'
check "nothing stays behind" test -z "$(ls six | grep array)"

sweep six.yaml --slurm "${site[@]}"
check "submitted" ended 0
check "two jobs of three runs" says '^array     job [0-9]+: 2 jobs for 6 runs'
job=$(job_of)
sweep six.yaml --slurm "${site[@]}"
check "not twice" says "^array     job $job of this sweep is still there: nothing is submitted"
check "the array ends" soon 150 over "$job"
cat six/jobs/"$job"_*.log >"$work/out" 2>/dev/null
check "its jobs tell their runs" says '^run +3/3  done in [0-9.]+ s: six/points/[0-9a-f]+/run-1'
sweep six.yaml --collect
check "collected" ended 0
check "all six" says '6 points, 6 of them to run, 1 time each; 6 runs done, 0 failed'
check "a row a run in SQLite" test "$(sql 'select count(*) from runs where state = "done" and steps = 12 and exit_code = 0 and loss > 0')" = 6
check "on nodes of the cluster" test "$(cat six/points/*/run-1.json | grep -c '"host":"n[12]"')" = 6
check "two ranks each" test "$(cat six/points/*/run-1/events.jsonl | grep -c '"start", "text": "2 ranks')" = 6
check "CSV has a line a point" test "$(wc -l <six/results.csv)" = 7
best=$(sql 'select id from points join runs on point = id order by loss limit 1')
run "$MT_BIN" train "six/points/$best/config.yaml" run.dir=again --fake-ranks 2
losses() { grep -o '"\(step\|loss\)": [^,]*' "$1/metrics.jsonl"; }
check "the best one's losses are those of ranks of one process" cmp <(losses again) <(losses "six/points/$best/run-1")
sweep six.yaml --slurm "${site[@]}"
check "nothing is left to do" says '^array     no run is due'

# halving: the second array goes on where the first stopped
sed -e 's/dir: six/dir: halved/' -e '$a halving: {from: 4, factor: 3}' six.yaml >halved.yaml
sweep halved.yaml --slurm "${site[@]}"
check "the first round" says ': 2 jobs for 6 runs'
check "ends" soon 150 over "$(job_of)"
check "after four steps each" test "$(cat halved/points/*/run-1/metrics.jsonl | wc -l)" = 24
sweep halved.yaml --slurm "${site[@]}"
check "the second round has the better third, and the baseline" says ': 1 jobs for [23] runs'
check "ends, too" soon 150 over "$(job_of)"
sweep halved.yaml --collect
check "the table says who was left out" says 'left out after round 1 of 2: place [3-6] of 6'
check "the best of the sweep before is the best of this one" grep -q "^1,[0-9]*,$best," halved/results.csv
check "with the losses of a run that was never stopped" cmp <(losses again) <(losses "halved/points/$best/run-1")
finish
