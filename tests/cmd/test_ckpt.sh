# moetitan ckpt: ls, show, verify, diff, reshard, prune.
source tests/check.sh
source tests/ckpt/small.sh
source_of() { echo "$work/run/ckpt/step-0000000$1"; }
lines() { [[ $(wc -l <"$work/out") == "$1" ]]; }
# damage STEP BYTE: one byte of its tensors, not the size
damage() { printf '\x55' | dd of="$(source_of "$1")/rank-00000.safetensors" bs=1 seek="$2" conv=notrunc status=none; }

run make_small_run
check "a run that saves" ended 0

# What is wrong with the words
for words in "" "lss $work/run" "ls" "ls a b" "ls --keep 1 $work/run" "show" "verify a b" "verify --verify $work/run" \
    "diff $work/run" "prune" "reshard a" "reshard a b c --ranks 2" "reshard a b --keep 2" "reshard a b" "ls --what $work/run" "prune $work/run --keep"; do
    # shellcheck disable=SC2086 # words
    run "$MT_BIN" ckpt $words
    check "usage of 'ckpt $words'" ended 2
    check "usage says so for 'ckpt $words'" says '^moetitan: (usage: moetitan ckpt|ckpt prune: say how many|ckpt reshard: say for how many)'
done
for keep in 0 -1 x 1x 99999999999999999999; do
    run "$MT_BIN" ckpt prune "$work/run" --keep "$keep"
    check "--keep $keep" ended 2
    check "--keep $keep is named" says "'$keep' is not a whole number"
done
for ranks in 0 x 4097; do
    run "$MT_BIN" ckpt reshard "$(source_of 6)" "$work/re" --ranks "$ranks"
    check "--ranks $ranks" ended 2
    check "--ranks $ranks is named" says "--ranks '?$ranks'? is "
done
for verb in show verify; do
    run "$MT_BIN" ckpt $verb "$work/run"
    check "$verb of a run's folder" ended 5
    check "$verb of a run's folder: what to name" says "run' is the folder of a run: name one of its checkpoints, as '.*run/ckpt/step-"
done
run "$MT_BIN" ckpt ls "$work"
check "no run: exit code" ended 5
check "no run: named" says "'$work/ckpt' holds no checkpoint"
run "$MT_BIN" ckpt verify "$(printf 'x%.0s' {1..1300})"
check "a path too long" ended 2

# ls, show, verify
run "$MT_BIN" ckpt ls "$work/run"
check "ls" ended 0
check "ls: a line each" lines 3
check "ls: step and tokens" says "^$(source_of 4)  step 4  512 tokens  [0-9.]+ MiB  complete$"
run "$MT_BIN" ckpt ls --verify "$work/run"
check "ls --verify" ended 0
check "ls --verify: valid" says "step 6  768 tokens .* valid$"
run "$MT_BIN" ckpt show "$(source_of 6)"
check "show" ended 0
check "show: step" says '^  step     6$'
check "show: files" says '^  file     rank-00000.safetensors +[0-9]+ bytes  [0-9a-f]{16}$'
run "$MT_BIN" ckpt verify "$(source_of 6)"
check "verify" ended 0
check "verify says so" says 'step-00000006: valid, step 6$'

# diff
run "$MT_BIN" ckpt diff "$(source_of 6)" "$(source_of 6)"
check "no difference" ended 0
check "no difference: said" says '^[0-9]+ tensors, equal to the bit$'
run "$MT_BIN" ckpt diff "$(source_of 4)" "$(source_of 6)"
check "differences: exit code" ended 5
check "differences: how many" says '^moetitan: [0-9]+ of [0-9]+ tensors differ$'
check "differences: how much" says '^  embed.weight +largest [0-9.]+e-0[3-9]  relative [0-9.]+e-0[1-9]$'
"$MT_BIN" train "$work/small.yaml" run.dir="$work/other" model.layers=3 model.dim=32 model.head_dim=16 train.steps=4 >"$work/out"
run "$MT_BIN" ckpt diff "$(source_of 4)" "$work/other/ckpt/step-00000004"
check "another model" ended 5
check "another model: shapes" says '^  embed.weight +\[256, 64\] and \[256, 32\]$'
check "another model: more tensors" says '^  layers.2.attn.q.weight +only in the second$'

# Resumed and never stopped: the same to the bit
"$MT_BIN" train "$work/small.yaml" run.dir="$work/again" run.stop_after=3 >"$work/out"
"$MT_BIN" train "$work/small.yaml" run.dir="$work/again" >"$work/out"
run "$MT_BIN" ckpt diff "$(source_of 6)" "$work/again/ckpt/step-00000006"
check "resumed is the same to the bit" ended 0

# reshard, there and back
run "$MT_BIN" ckpt reshard "$(source_of 6)" "$work/files/seven" --ranks 7
check "reshard" ended 0
check "reshard says so" says '^.*/files/seven: files of 7 ranks$'
check "reshard: no bar where no terminal is" test "$(wc -l <"$work/out")" = 1
check "reshard: files" test "$(find "$work/files/seven" -name 'rank-*.safetensors' | wc -l)" = 7
run "$MT_BIN" ckpt show "$work/files/seven"
check "reshard: show" says '^  format   version 2, written by 7 ranks$'
run "$MT_BIN" ckpt diff "$(source_of 6)" "$work/files/seven"
check "reshard: the same to the bit" says '^[0-9]+ tensors, equal to the bit$'
run "$MT_BIN" ckpt reshard "$work/files/seven" "$work/files/one" --ranks 1
check "and back" ended 0
check "and back: the same tensors, by name" test "$(stat -c %s "$work/files/one/rank-00000.safetensors")" -gt 100000
run "$MT_BIN" ckpt diff "$(source_of 6)" "$work/files/one"
check "and back: the same to the bit" ended 0
run "$MT_BIN" ckpt reshard "$work/files/seven" "$work/files/one" --ranks 2
check "a folder that is there" ended 2
check "a folder that is there: said" says "'$work/files/one' is there already"
run "$MT_BIN" sample "$work/files/seven" --tokens 3
check "a sample of the resharded" ended 0

# Damage
damage 6 300000
run "$MT_BIN" ckpt verify "$(source_of 6)"
check "damage: exit code" ended 5
check "damage: the tensor is named" says "tensor '[a-z0-9._]+' is damaged"
run "$MT_BIN" ckpt ls "$work/run"
check "ls does not read the tensors" says 'step 6 .* complete$'
run "$MT_BIN" ckpt ls --verify "$work/run"
check "ls --verify does: exit code" ended 5
check "ls --verify does" says 'step-00000006  NOT VALID: .*is damaged'
check "ls --verify: the sound ones too" says 'step 4 .* valid$'
run "$MT_BIN" ckpt diff "$(source_of 4)" "$(source_of 6)"
check "diff refuses it" says "is damaged"

# prune
run "$MT_BIN" ckpt prune "$work/run" --keep 2
check "prune with a damaged one" ended 0
check "prune with a damaged one: it counts for none, said" says "^moetitan: counts for none of the 2: .*step-00000006/.* is damaged"
check "prune with a damaged one: how many" says '^0 removed, 3 left, of which 1 damaged$'
check "prune with a damaged one: both sound ones stay" test -e "$(source_of 2)/manifest.json"
cp -r "$work/run" "$work/pruned"
run "$MT_BIN" ckpt prune "$work/pruned" --keep 1
check "prune behind a damaged one" says '^1 removed, 2 left, of which 1 damaged$'
check "prune behind a damaged one: the newest sound one stays" "$MT_BIN" ckpt verify "$work/pruned/ckpt/step-00000004"
printf '\x55' | dd of="$work/pruned/ckpt/step-00000004/rank-00000.safetensors" bs=1 seek=300000 conv=notrunc status=none
run "$MT_BIN" ckpt prune "$work/pruned" --keep 1
check "prune where all are damaged" ended 5
check "prune where all are damaged: said" says "nothing was removed, as no checkpoint of '.*pruned' is valid"
rm "$(source_of 6)/manifest.json"
run "$MT_BIN" ckpt ls "$work/run"
check "an incomplete one is listed" says 'step-00000006  NOT VALID: cannot open .*manifest.json'
run "$MT_BIN" ckpt prune "$work/run" --keep 1
check "prune" ended 0
check "prune: said" says '^1 removed, 2 left$'
check "prune: the newest complete one stays" test -e "$(source_of 4)/manifest.json"
check "prune: older ones go" test ! -e "$(source_of 2)"
check "prune: what may be being written stays" test -e "$(source_of 6)"

# The run goes on from the one that is whole, and replaces the other
run "$MT_BIN" train "$work/small.yaml"
check "resume" ended 0
check "resume from step 4" says 'going on from .*/step-00000004$'
run "$MT_BIN" ckpt verify "$(source_of 6)"
check "saved anew" ended 0

# Metrics that the run's folder has lost come from the checkpoint.
steps=6
lines_of() { grep -c '"loss"' "$work/run/metrics.jsonl"; }
check "all metrics are there" test "$(lines_of)" = 6
for lost in all some; do
    steps=$((steps + 1))
    if [[ $lost == all ]]; then rm "$work/run/metrics.jsonl"; else sed -i 2,4d "$work/run/metrics.jsonl"; fi
    run "$MT_BIN" train "$work/small.yaml" train.steps=$steps
    check "metrics lost, $lost: resumed" ended 0
    check "metrics lost, $lost: there again" test "$(lines_of)" = $steps
done
finish
