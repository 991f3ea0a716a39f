# test: timeout=120
# Steps that are left out: by a spike of the loss that the data have, or because nothing is a number any more; killed and resumed too.
source tests/check.sh
source tests/train/tiny.sh
tiny_setup
noise() { # a few lines that nothing in the text prepares for
    awk -v x=99 'BEGIN {
        for (l = 0; l < 8; l++) {
            for (i = 0; i < 130; i++) {
                x = (x * 1103515245 + 12345) % 2147483648
                printf "%c", 33 + int(x / 65536) % 90
            }
            print ""
        }
    }'
}
{
    head -n 300 "$work/text"
    noise
    tail -n 300 "$work/text"
} >"$work/mixed"
run "$MT_BIN" data pack "$work/mixed" -o "$work/corpus" --document line
check "the data" ended 0

spikes=(train.steps=130 train.eval_interval=0 guard.spike_window=16 guard.spike_factor=1.3 guard.spike_norm_factor=0)
left_out() { grep -c '"skipped": "spike"' "$1/run/metrics.jsonl"; }
run train "$work/abort" "${spikes[@]}" guard.spike=abort
check "abort: exit code 10" ended 10
check "abort: what, and what to do" says 'step [0-9]+: the loss is 2\.[0-9]+ and the gradient norm .*; after the last 16 steps a loss of .* is allowed; .*The newest checkpoint is of step [0-9]+.*guard\.spike'
run train "$work/skip" "${spikes[@]}" guard.spike=skip
check "skip: the run ends well" ended 0
check "skip: some steps were left out" test "$(left_out "$work/skip")" -ge 5
check "skip: told" says 'step +[0-9]+  left out: the loss is '
check "skip: a line a step all the same" test "$(wc -l <"$work/skip/run/metrics.jsonl")" = 130
run train "$work/back" "${spikes[@]}" guard.spike=rollback
check "rollback: the run ends well" ended 0
check "rollback: to the newest checkpoint" says 'left out: .*; back to the weights of step (63|70|77)'
check "rollback: some" test "$(grep -c '"rollback": ' "$work/back/run/metrics.jsonl")" -ge 5
check "rollback is not the same as skip" test "$(tail -n 1 "$work/skip/run/metrics.jsonl")" != "$(tail -n 1 "$work/back/run/metrics.jsonl")"

# Stopped again and again: the same steps are left out, and the same bits come of it. The checkpoints that a stop makes do not push
# out the one to go back to.
for what in skip back; do
    how=skip times=0
    [[ $what == skip ]] || how=rollback
    rc=75
    while [[ $rc == 75 && $times -lt 8 ]]; do
        run train "$work/cut-$what" "${spikes[@]}" guard.spike=$how run.stop_after=19 ckpt.keep_last=1
        times=$((times + 1))
    done
    check "$how, stopped every 19 steps: ends" test "$rc" = 0 -a $times = 7
    check "$how, stopped every 19 steps: the same curve" same_curve "$work/$what" "$work/cut-$what"
    check "$how, stopped every 19 steps: the same checkpoint" cmp "$work/$what/run/ckpt/step-00000130/rank-00000.safetensors" \
        "$work/cut-$what/run/ckpt/step-00000130/rank-00000.safetensors"
done
# The checkpoint to go back to is damaged: it is named, and the one before it is taken. Stopped before the first step that is left out.
first=$(sed -nE 's/^\{"step": ([0-9]+), "rollback": .*/\1/p' "$work/back/run/metrics.jsonl" | head -n 1)
before=$(((first - 1) / 7 * 7))
run train "$work/hurt" "${spikes[@]}" guard.spike=rollback run.stop_after=$((first - 1))
check "damaged: stopped" ended 75
check "damaged: the run goes on from another one" test $((first - 1)) -gt $before
newest=$work/hurt/run/ckpt/$(printf 'step-%08d' $before)
printf '\377\377\377\377' | dd of="$newest/rank-00000.safetensors" bs=1 seek=9000 conv=notrunc 2>/dev/null
run train "$work/hurt" "${spikes[@]}" guard.spike=rollback
check "damaged: the run ends well" ended 0
check "damaged: named" says "passing over a checkpoint: .*$(basename "$newest")/rank-00000.safetensors"
check "damaged: rolled back further" says "step +$first  left out: .*; back to the weights of step $((before - 7))\$"
check "damaged: the metrics have that step" grep -q "^{\"step\": $first, \"rollback\": $((before - 7))," "$work/hurt/run/metrics.jsonl"

run train "$work/few" "${spikes[@]}" guard.spike=skip guard.max_skips=3
check "guard.max_skips: exit code 10" ended 10
check "guard.max_skips: says so" says '3 steps were left out before this one, as many as guard\.max_skips'
check "guard.max_skips: so many" test "$(left_out "$work/few")" = 3

# each step multiplies the weights by 1 - 10 x 10
bad=(train.steps=100 optim.warmup_steps=0 train.eval_interval=0 optim.lr=10 optim.weight_decay=10)
run train "$work/bad" "${bad[@]}" guard.nonfinite=skip guard.max_skips=4
check "not finite, skip: in the end exit code 10" ended 10
check "not finite, skip: 4 times" test "$(grep -c '"skipped": "nonfinite", "loss": [0-9.]*, "grad_norm": null' "$work/bad/run/metrics.jsonl")" = 4
run train "$work/none" "${bad[@]}" guard.nonfinite=rollback ckpt.interval=0
check "rollback without a checkpoint: exit code 10" ended 10
check "rollback without a checkpoint: says so" says 'there is no checkpoint yet to go back to'
check "the reason is in the folder" grep -q '^{"code":10,"name":"NONFINITE","message":"step [0-9]*: the loss is .*","step":[0-9]*,' "$work/none/run/exit.json"
finish
