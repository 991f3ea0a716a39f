# A checkpoint read by a reader that shares nothing with the program but docs/checkpoints.md.
source tests/check.sh
source tests/ckpt/small.sh

if ! python3 -c 'import safetensors, xxhash, numpy' 2>/dev/null; then
    echo "skipped: tests/ckpt/test_reader.sh: no python3 with safetensors, xxhash and numpy"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
read_it() { run python3 tests/oracle/read_ckpt.py "$1"; }
run make_small_run --fake-ranks 2 mesh.ep=2 train.micro_batch=1
check "a run on two ranks" ended 0
ckpt=$work/run/ckpt/step-00000006
read_it "$ckpt"
check "the reader accepts it" ended 0
check "step and tokens" says '^valid: step 6, 768 tokens, written by 2 rank'
check "an expert, [out, in]" says '^layers.1.moe.experts.3.down.weight \[64, 32\] [0-9a-f]{16}$'
check "a vector" says '^layers.1.moe.router.bias \[4\] '
check "a moment, in pieces" says '^optim.m.embed.weight \[256, 64\] '
for file in rank-00000.safetensors rank-00001.json config.yaml metrics.jsonl manifest.json; do
    cp "$ckpt/$file" "$work/kept"
    printf '\x01' | dd of="$ckpt/$file" bs=1 seek=200 conv=notrunc status=none
    read_it "$ckpt"
    check "the reader refuses a changed $file" test "$rc" != 0
    run "$MT_BIN" ckpt verify "$ckpt"
    check "so does the program" ended 5
    cp "$work/kept" "$ckpt/$file"
done
# In other numbers of files the reader sees the same tensors.
read_it "$ckpt"
grep -v '^valid' "$work/out" >"$work/tensors"
for ranks in 1 5; do
    run "$MT_BIN" ckpt reshard "$ckpt" "$work/files$ranks" --ranks $ranks
    check "reshard --ranks $ranks" ended 0
    read_it "$work/files$ranks"
    check "the reader accepts it" says "written by $ranks rank"
    check "the reader sees the same tensors" cmp -s "$work/tensors" <(grep -v '^valid' "$work/out")
done
finish
