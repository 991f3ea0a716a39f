# test: timeout=120
# `moetitan sweep` on this machine: points planned, run, compared; stopped and gone on with; failures; halving.
source tests/check.sh
source tests/train/tiny.sh
tiny_setup
cd "$work" || exit
sweep() { run "$MT_BIN" sweep "$@"; }
sql() { sqlite3 "$1/results.sqlite" "$2"; }
runs() { cat "$1"/points/*/run-*/events.jsonl | grep -c '"event": "\(start\|resume\)"'; }

cat >speed.yaml <<END
extends: tiny.yaml
set: {train.steps: 8, optim.warmup_steps: 2, train.eval_interval: 4, device.workers: 1}
grid: {recompute.policy: [full, none], shard.prefetch: [1, 2]}
list: [{train.micro_batch: 1}, {train.micro_batch: 2}, {train.micro_batch: 3}]
where: train.micro_batch * shard.prefetch <= 3
baseline: {shard.prefetch: 1, recompute.policy: none, train.micro_batch: 2}
repeats: 2
at_once: 2
dir: speed
END
sweep speed.yaml --plan
check "a plan" ended 0
check "says what is to come" says '8 points, 6 of them to run, 2 times each; 0 runs done, 0 failed; where left 4 out'
check "a point that rules forbid is told, with the rule" says 'train.micro_batch=3 .* -- refused: .*train.global_batch: 4 is no multiple of'
check "nothing has run" test ! -e speed/points/*/run-1
sweep speed.yaml
check "the sweep" ended 0
check "twelve runs" says '8 points, 6 of them to run, 2 times each; 12 runs done, 0 failed'
check "best first" awk '/^ +[0-9]+[= ] +[0-9]+ +[0-9]/ { if (n++ && $3 > last) exit 1; last = $3 } END { exit n != 6 }' "$work/out"
check "the baseline's ratio is one" says '^ +[0-9]+= +[0-9]+ +[0-9.e+]+ +[0-9.]+% +1\.000 .*  train.micro_batch=2 shard|^ +[0-9]+= .* 1\.000 '
check "whose routing the speeds are" says '^routing   learned in every point; '
check "a row a run" test "$(sql speed 'select count(*) from runs where state = "done" and tokens_per_s > 0 and loss > 1 and val_loss > 1')" = 12
check "settings can be asked for" test "$(sql speed 'select count(*) from settings where option = "shard.prefetch" and value = "2"')" = 2
check "one baseline" test "$(sql speed 'select words from points where baseline')" = "train.micro_batch=2 recompute.policy=none shard.prefetch=1"
check "repeats with one seed have one loss" test "$(sql speed 'select count(distinct loss) from runs group by point' | sort -u)" = 1
check "CSV: a line a point, and a head" test "$(wc -l <speed/results.csv)" = 9
check "CSV: as many fields in each line" awk -F'","|,"|",|,' 'NR == 1 { n = gsub(/,/, ",") } NR > 1 && /^1,/ { gsub(/"[^"]*"/, ""); if (gsub(/,/, ",") != n) exit 1 }' speed/results.csv
check "pictures of each option, and of speed over memory" xmllint --noout speed/option-{recompute.policy,shard.prefetch,train.micro_batch}.svg speed/pareto.svg
check "a dot a point" test "$(grep -c '<circle' speed/option-shard.prefetch.svg)" = 6
cat >routing.yaml <<END
extends: tiny.yaml
grid: {moe.routing: [learned, balanced]}
dir: routing
END
sweep routing.yaml --plan
check "both routings are points" says 'moe.routing=balanced'
check "and nothing more is said of them" test -z "$(grep '^routing ' "$work/out")"
check "no checkpoints are left" test -z "$(find speed -name 'step-*')"
before=$(runs speed)
sweep speed.yaml
check "again: all is there" says '12 runs done, 0 failed'
check "again: nothing runs" test "$(runs speed)" = "$before"
point=$(sql speed 'select id from points where number = 1')
run "$MT_BIN" train "speed/points/$point/config.yaml" run.dir=byhand
losses() { grep -o '"\(step\|loss\|grad_norm\)": [^,]*' "$1/metrics.jsonl"; }
check "a point's configuration gives the point's losses" cmp <(losses byhand) <(losses "speed/points/$point/run-1")

# stopped, killed, gone on with
cat >stopped.yaml <<END
extends: tiny.yaml
dir: stopped
set: {train.steps: 150, train.eval_interval: 0, ckpt.interval: 10}
grid: {shard.prefetch: [1, 2]}
repeats: 2
END
"$MT_BIN" sweep stopped.yaml >"$work/out" 2>&1 &
pid=$!
soon() { for ((i = 0; i < 400; i++)); do "$@" && return 0; sleep 0.05; done; return 1; }
second_runs() { [[ $(ls -d stopped/points/*/run-1/ckpt 2>/dev/null | wc -l) == 2 ]]; }
check "the second run is under way" soon second_runs
mv out first
sweep stopped.yaml
check "a second one in the same folder" ended 6
check "is told of the first" says "another process runs the sweep in 'stopped'"
mv first out
kill -TERM $pid
wait $pid
rc=$?
check "a signal ends it as stopped" ended 75
check "and says how to go on" says 'stopped with [0-9]+ of 4 runs ended; the same command goes on from there'
check "no run stays behind" test -z "$(pgrep -f "points/[0-9a-f]*/config.yaml run.dir=stopped" || true)"
sweep stopped.yaml
check "it goes on" ended 0
check "to its end" says '4 runs done, 0 failed'
check "the run that was stopped went on from its checkpoint" test "$(cat stopped/points/*/run-*/events.jsonl | grep -c '"resume"')" -ge 1
check "and has the losses of the one that was not" test "$(sql stopped 'select count(distinct loss) from runs group by point' | sort -u)" = 1

# failures
cat >fail.yaml <<END
extends: tiny.yaml
dir: fail
set: {train.steps: 6, optim.warmup_steps: 1, train.eval_interval: 0}
list: [{data.train: $work/corpus}, {data.train: $work/later}]
metric: loss
END
sweep fail.yaml
check "a run that fails does not end the sweep" ended 0
check "it is counted" says '1 runs done, 1 failed'
check "with code and reason" says 'repeat 1 failed, exit code 4: .*later'
check "in SQLite, too" test "$(sql fail 'select exit_code from runs where state = "failed"')" = 4
sweep fail.yaml
check "it is not tried again by itself" test "$(grep -c . fail/points/*/run-1.log | grep -c .)" = 2 -a "$(grep -l later fail/points/*/run-1.log | xargs cat | grep -c 'later')" = 1
cp corpus.idx later.idx
cp corpus.bin later.bin
sweep fail.yaml --again
check "--again tries it" says '2 runs done, 0 failed'
sed -e 's/dir: fail/dir: late/' -e 's/train.steps: 6/train.steps: 1000000/' -e '$a timeout: 1s' fail.yaml >late.yaml
sweep late.yaml
check "a run that takes too long is ended, and told" says 'failed, exit code 9: took longer than timeout'

# ranks, halving
cat >halve.yaml <<END
extends: tiny.yaml
dir: halve
set: {train.steps: 24, optim.warmup_steps: 2, train.eval_interval: 0, device.workers: 1}
grid: {optim.lr: [1e-5, 1e-4, 1e-3, 1e-2]}
metric: loss
ranks: 2
halving: {from: 6, factor: 2}
END
sweep halve.yaml
check "halving" ended 0
check "rounds of 6, 12 and 24 steps" test "$(sort -n <(for f in halve/points/*/run-1/metrics.jsonl; do wc -l <"$f"; done) | xargs)" = "6 12 24 24"
check "two ranks" test "$(cat halve/points/*/run-1/events.jsonl | grep -c '"start", "text": "2 ranks')" = 4
check "the largest rate learns the most in 24 steps" says '^ +1 +4 .*  optim.lr=0.01$'
check "the baseline stays to the end" says '^ +2= +1 .*  optim.lr=1e-05$'
check "who was left out, and when" says 'optim.lr=0.0001 -- left out after round 1 of 3: place 3 of 4'

# what cannot be
sed -e 's/dir: speed/dir: none/' -e '/^list\|^where\|^baseline/d' -e 's/train.steps: 8/train.global_batch: 3, train.micro_batch: 2/' speed.yaml >none.yaml
sweep none.yaml
check "no point can run: an error" ended 2
check "no point can run: says so" says 'none of 4 points can run: the table above says why'
sed -e 's/dir: speed/dir: none/' -e 's/train.steps: 8/train.steps: 8, device.memory: 1000/' speed.yaml >none.yaml
sweep none.yaml
check "no point fits: another" ended 3
check "how much it lacks" says 'does not fit: device memory: [0-9.]+ MiB of 0.00'
sweep speed.yaml halve.yaml
check "two files" ended 2
sweep
check "no file" says 'usage: moetitan sweep'
sweep speed.yaml --nodes 3
check "a site's flag without Slurm" says "no flag '--nodes' \(of a site: behind --slurm\)"
sweep --task nowhere:0
check "a task without its file" says "cannot read 'nowhere'"
echo "no tables" >speed/results.sqlite
sweep speed.yaml --collect
check "results that are no database" ended 6
check "results that are no database: what to do" says "results.sqlite' failed: .*; remove it: it is made anew"
printf 'a\n' >lines
sweep --task lines:7
check "a task without its line" says "'lines' has no line 8"
sweep --task lines:0
check "a line that is no run" says "a run without run.dir: 'a'"
finish
