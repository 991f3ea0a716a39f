# test: timeout=120
# Interrupted runs end as if nothing had been: by SIGKILL, SIGTERM, run.stop_after; what a resumed run may change.
source tests/check.sh
source tests/train/tiny.sh
source tests/train/resume.sh
tiny_setup
whole_run
check "the curve has a line a step and three validations" test "$(wc -l <"$work/whole/run/metrics.jsonl")" = 63
check_killed 5 1

# Asked to stop, at once and in the middle; again where the run was over before it could be asked.
terminated() { # SECONDS
    for _ in 1 2 3 4 5 6 7 8; do
        rm -rf "$work/cut"
        start "$work/cut" train.steps=60
        until [[ -s $work/cut/run/metrics.jsonl ]] || ! kill -0 $pid 2>/dev/null; do sleep 0.005; done
        sleep "$1"
        kill -TERM $pid 2>/dev/null
        rc=0
        wait $pid || rc=$?
        cp "$work/log" "$work/out"
        [[ $rc == 0 ]] || break
    done
    [[ $rc == 75 ]]
}
for after in 0 0.05; do
    check "SIGTERM after $after s: exit code 75" terminated $after
    check "SIGTERM: says that all is saved" says 'stopped after step [0-9]+ of 60'
    run train "$work/cut" train.steps=60
    check "SIGTERM after $after s: goes on" ended 0
    check "SIGTERM after $after s: the same curve" same_curve "$work/whole" "$work/cut"
done

rm -rf "$work/cut"
for step in 23 46; do
    run train "$work/cut" run.stop_after=23
    check "run.stop_after: exit code 75" ended 75
    check "run.stop_after: stopped there" says "stopped after step $step of 60"
    check "run.stop_after: saved there" test -f "$work/cut/run/ckpt/step-000000$step/manifest.json"
done
run train "$work/cut" run.stop_after=23
check "run.stop_after: the rest is shorter" ended 0
check "run.stop_after: the same curve" same_curve "$work/whole" "$work/cut"

# what may not change
cp -r "$work/whole" "$work/other"
for change in model.dim=48 model.layers=3 train.seed=2 data.document_mask=false; do
    run train "$work/other" $change train.steps=65
    check "resumed with $change: refused" ended 2
    check "resumed with $change: named" says "${change%%=*}"
done
run train "$work/other" optim.lr=1e-3 train.steps=65 device.workers=1 moe.buffer_factor=2
check "resumed with what is free" ended 0
check "it went on from step 60" test "$(grep -c '"step": 6[1-5], "tokens"' "$work/other/run/metrics.jsonl")" = 5
run train "$work/whole" train.steps=60
check "a run that is done ends at once" ended 0

# weights of another run, and only these
run train "$work/fresh" train.steps=3 optim.warmup_steps=0
check "from scratch" ended 0
run train "$work/from" train.steps=3 optim.warmup_steps=0 init.from="$work/whole/run/ckpt/step-00000060"
check "init.from" ended 0
first() { head -n 1 "$1/run/metrics.jsonl"; }
loss() { first "$1" | sed -E 's/.*"loss": ([^,]*),.*/\1/'; }
check "init.from begins at step 1" grep -q '"step": 1, "tokens": 128,' <(first "$work/from")
check "init.from begins with a lower loss" awk "BEGIN { exit !($(loss "$work/from") < $(loss "$work/fresh") - 0.5) }"
run train "$work/from2" train.steps=3 optim.warmup_steps=0 init.from="$work/nowhere"
check "init.from nothing: a checkpoint's error" ended 5
finish
