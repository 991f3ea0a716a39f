# test: timeout=120
# A run on several token files: the same on one rank and on four, and resumed; what does not belong together is refused.
source tests/check.sh
source tests/train/tiny.sh
tiny_setup
tiny_text 200 11 >"$work/text2"
"$MT_BIN" data pack "$work/text2" -o "$work/corpus2" --document line >/dev/null
{
    grep -v 'train: .*corpus' "$work/tiny.yaml"
    printf 'extra: x\n'
} | sed "s|^data:|data:\n  blend: [{path: $work/corpus, weight: 3}, {path: $work/corpus2, weight: 1}]|; /^extra/d; s|micro_batch: 2|micro_batch: 1|" >"$work/blend.yaml"
blend() { (mkdir -p "$1" && cd "$1" && exec "$MT_BIN" train "$work/blend.yaml" train.steps=20 train.dtype=f32 "${@:2}"); }

run blend "$work/one"
check "one rank" ended 0
run blend "$work/four" --fake-ranks 4
check "four ranks" ended 0
run blend "$work/cut" run.stop_after=9
check "stopped" ended 75
run blend "$work/cut"
check "resumed" ended 0
losses() { sed -n 's/.*"step": *\([0-9]*\),.*"loss": *\([0-9.e+-]*\).*/\1 \2/p' "$1/run/metrics.jsonl"; }
check "there are twenty losses" test "$(losses "$work/one" | wc -l)" = 20
check "resumed: the same losses" test "$(losses "$work/cut")" = "$(losses "$work/one")"
check "four ranks: the same to 1e-5" awk '
    NR == FNR { a[$1] = $2; next }
    { d = a[$1] - $2; if (d < 0) d = -d; if (!(d <= 1e-5 * $2)) bad = 1; n++ } END { exit bad || n != 20 }' \
    <(losses "$work/one") <(losses "$work/four")
run blend "$work/other" "data.train=$work/corpus"
check "both data.train and data.blend" ended 2
check "says so" says 'data.train and data.blend are both set'
finish
