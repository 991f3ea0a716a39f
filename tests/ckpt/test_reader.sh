# A checkpoint read by a reader that shares nothing with the program but docs/checkpoints.md.
source tests/check.sh
source tests/ckpt/small.sh

if ! python3 -c 'import safetensors, xxhash, numpy' 2>/dev/null; then
    echo "skipped: tests/ckpt/test_reader.sh: no python3 with safetensors, xxhash and numpy"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
run make_small_run
check "a run" ended 0
ckpt=$work/run/ckpt/step-00000006
run python3 tests/oracle/read_ckpt.py "$ckpt"
check "the reader accepts it" ended 0
check "step and tokens" says '^valid: step 6, 768 tokens, 1 rank'
check "an expert, [out, in]" says '^layers.1.moe.experts.3.down.weight \[64, 32\] [0-9a-f]{16}$'
check "a vector" says '^layers.1.moe.router.bias \[4\] '
check "a moment" says '^optim.m.embed.weight \[256, 64\] '
for file in rank-00000.safetensors rank-00000.json config.yaml manifest.json; do
    cp "$ckpt/$file" "$work/kept"
    printf '\x01' | dd of="$ckpt/$file" bs=1 seek=200 conv=notrunc status=none
    run python3 tests/oracle/read_ckpt.py "$ckpt"
    check "the reader refuses a changed $file" test "$rc" != 0
    run "$MT_BIN" ckpt verify "$ckpt"
    check "so does the program" ended 5
    cp "$work/kept" "$ckpt/$file"
done
finish
