# test: timeout=120
# Sequences placed on ranks by cost: the losses of one rank, the same bits after an interruption, less to wait for.
source tests/check.sh
source tests/train/tiny.sh
tiny_setup
"$MT_BIN" data pack "$work/corpus.idx" --pack-length 64 >"$work/out" 2>&1 || cat "$work/out"
base=(train.dtype=f32 train.global_batch=16 train.seq_len=64 train.steps=12 train.eval_interval=6 ckpt.interval=0
    optim.decay_ratio=0 train.micro_batch=1)
four=(--fake-ranks 4 mesh.ep=2)

column() { sed -nE "s/.*\"step\": ([0-9]+),.*\"$2\": ([^,}]+).*/\1 \2/p" "$1/run/metrics.jsonl"; }
near() { # A B   equal numbers of lines, and every loss within 1e-6 of the other's
    paste <(column "$1" loss) <(column "$2" loss) >"$work/out"
    awk -v n=0 'NF != 4 || $1 != $3 || !(($2 - $4) ^ 2 <= (1e-6 * $4) ^ 2) { bad = 1 } { n++ } END { exit bad || n != 12 }' "$work/out"
}
less() { # FOLDER   what is waited for as placed is nowhere more than in the order of the data, and by far less on the whole
    paste <(column "$1" rank_imbalance) <(column "$1" rank_imbalance_data_order) >"$work/out"
    awk '!($2 <= $4 && $2 >= 1) { bad = 1 } { placed += $2 - 1; data += $4 - 1; n++ } END { exit bad || n != 12 || !(placed < 0.6 * data) }' "$work/out"
}

for mode in windows packed; do
    at=("${base[@]}" data.mode=$mode)
    run train "$work/$mode/one" "${at[@]}"
    check "$mode: one rank" ended 0
    run train "$work/$mode/one_balanced" "${at[@]}" data.balance=attention
    check "$mode: one rank, balanced: the same curve" same_curve "$work/$mode/one" "$work/$mode/one_balanced"
    run train "$work/$mode/balanced" "${at[@]}" "${four[@]}" data.balance=attention
    check "$mode: trains balanced" ended 0
    check "$mode: says what is gained" says 'balance +the costliest rank takes 1\.[0-9]+ times .*, 1\.[0-9]+ in the order of the data'
    check "$mode: losses of one rank" near "$work/$mode/one" "$work/$mode/balanced"
    check "$mode: the ranks are more alike" less "$work/$mode/balanced"
    run train "$work/$mode/layer" "${at[@]}" "${four[@]}" data.balance=attention mesh.ep=1 train.micro_order=layer
    check "$mode: waiting once a step: losses of one rank" near "$work/$mode/one" "$work/$mode/layer"
    check "$mode: waiting once a step: more alike" less "$work/$mode/layer"
    run train "$work/$mode/cut" "${at[@]}" "${four[@]}" data.balance=attention run.stop_after=5
    check "$mode: stopped" ended 75
    cp -r "$work/$mode/cut" "$work/$mode/off"
    run train "$work/$mode/cut" "${at[@]}" "${four[@]}" data.balance=attention
    check "$mode: gone on: the same curve" same_curve "$work/$mode/balanced" "$work/$mode/cut"
    check "$mode: gone on: the same bits" same_checkpoint "$work/$mode/balanced" "$work/$mode/cut" 00000012
    run train "$work/$mode/off" "${at[@]}" "${four[@]}"
    check "$mode: gone on without: losses of one rank" near "$work/$mode/one" "$work/$mode/off"
done
run train "$work/none" "${base[@]}" "${four[@]}"
check "in the order of the data: told too" says 'balance +the costliest rank takes 1\.[0-9]+ times the mean by the lengths of documents \('
run train "$work/alike" "${base[@]}" "${four[@]}" data.document_mask=false data.balance=attention
check "sequences of one cost: nothing to tell" bash -c "! grep -q rank_imbalance '$work/alike/run/metrics.jsonl'"
finish
