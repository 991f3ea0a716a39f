# test: timeout=3600
# A small relative of each family learns real text for 200 steps, on one rank and on eight, with experts exchanged and without.
source tests/check.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
{
    scripts/corpus.sh "$work" &&
        "$MT_BIN" data pack "$work/corpus.txt" -o "$work/train" &&
        "$MT_BIN" data pack "$work/valid.txt" -o "$work/valid"
} >"$work/data.log" 2>&1
check "the corpus" test -s "$work/train.bin" -a -s "$work/valid.bin"

loss_at() { # RUN STEP
    sed -n "s/^{\"step\": $2, .*\"loss\": \([0-9.]*\),.*/\1/p" "$work/$1/metrics.jsonl" | head -n 1
}
# NAME OPTIONS...
learn() {
    local name=$1
    shift
    "$MT_BIN" train "configs/models/$family-tiny.yaml" run.dir="$work/$name" data.train="$work/train" data.valid="$work/valid" \
        train.steps=200 train.seq_len=128 train.global_batch=8 train.micro_batch=1 train.eval_interval=0 train.log_interval=1 \
        ckpt.interval=0 ckpt.at_end=false "$@" >"$work/$name.log" 2>&1
    check "$name: ends well" test $? = 0
    local first last
    first=$(loss_at "$name" 1) last=$(loss_at "$name" 200)
    printf '  %s: loss %s at step 1, %s at step 200\n' "$name" "$first" "$last"
    # 5.55 is that of guessing a byte; letters by their frequency alone have about 3.
    check "$name: learns" awk "BEGIN { exit !($first > 5 && $first < 6.5 && $last < 2.6) }"
}
for family in qwen3 mixtral glm deepseek; do
    learn "$family-1"
    learn "$family-8" --fake-ranks 8 mesh.ep=4 mesh.ranks_per_node=4
    check "$family: as on one rank" awk "BEGIN { d = $(loss_at "$family-8" 200) / $(loss_at "$family-1" 200) - 1; exit !(d < 0.03 && d > -0.03) }"
done
finish
