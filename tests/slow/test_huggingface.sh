# test: timeout=3600
# Random models of the transformers library: imported, the same logits and loss; exported, opened by the library with nothing missing or left
# over, its own logits; and a model trained here, exported, its loss by the library. Needs the network, and Python.
source tests/check.sh
source tests/ckpt/small.sh
oracle=${MT_BUILD%/*}/oracle-huggingface python='' exported=()
seed=${HUGGINGFACE_SEED:-$RANDOM}
if [[ -n ${HUGGINGFACE_PYTHON:-} ]]; then
    python=$HUGGINGFACE_PYTHON
elif [[ -x $oracle/bin/pip ]] || python3 -m venv "$oracle"; then
    "$oracle/bin/pip" -q install torch==2.15.0 transformers==5.24.0 safetensors==0.8.0 numpy==2.4.6 >"$work/out" 2>&1 && python=$oracle/bin/python
fi
if [[ -z $python ]]; then
    echo "skipped: tests/slow/test_huggingface.sh: cannot install the oracle: $(tail -n 1 "$work/out")"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi

echo "seed $seed"
run "$python" -B tests/oracle/huggingface.py make "$work/models" "$seed"
check "models of the library" ended 0
run "$MT_BUILD/tests/hf/test_logits" "$work"/models/*
check "imported: the same logits and loss" ended 0
check "imported: all of them" says '^40 passed, 0 failed$'
for folder in "$work"/models/*; do
    name=${folder##*/}
    run "$MT_BIN" ckpt import "$folder" "$work/$name"
    check "$name: import" ended 0
    run "$MT_BIN" ckpt export "$work/$name" "$work/$name.hf" --dtype f32 --shard-bytes 9000
    check "$name: export" ended 0
    exported+=("$work/$name.hf" "$folder")
done
run "$python" -B tests/oracle/huggingface.py check "${exported[@]}"
check "exported: opened by the library, with its logits" ended 0
check "exported: nothing missing, nothing left over" test "$(grep -c 'loading info: empty$' "$work/out")" = 40

# Trained here: the loss of its own validation, by the library
run make_small_run model.score=sigmoid model.qk_norm=true train.steps=30 ckpt.interval=0 train.eval_interval=30 \
    data.valid_fraction=0.1 data.document_mask=false data.reset_positions=false
check "a run here" ended 0
run "$MT_BIN" ckpt export "$work/run/ckpt/step-00000030" "$work/run.hf"
check "its export" ended 0
loss=$(grep -o '"val_loss": *[0-9.]*' "$work/run/metrics.jsonl" | tail -n 1 | grep -o '[0-9.]*$')
run "$python" -B tests/oracle/huggingface.py loss "$work/run.hf" "$work/text.txt"
check "its export: opened" ended 0
echo "validation loss here $loss, of the whole text by the library $(tail -n 1 "$work/out")"
check "its loss on its text, by the library, is near that of its validation" \
    awk -v a="$loss" -v b="$(tail -n 1 "$work/out")" 'BEGIN { exit !(a > 0 && b > 0 && (a - b) ^ 2 < 0.01) }'
finish
