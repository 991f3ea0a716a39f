# test: timeout=120
# Text from a saved checkpoint: by seed, by temperature, from a run's folder; what is refused.
source tests/check.sh
source tests/train/tiny.sh
tiny_setup
run train "$work/run" train.steps=150 optim.decay_ratio=0 ckpt.interval=50 train.eval_interval=0
check "a run to sample from" ended 0
ckpt=$work/run/run/ckpt/step-00000150

sample() { "$MT_BIN" sample "$@" 2>"$work/err" >"$work/out"; }
text() { # FILE OPTIONS...
    rc=0
    "$MT_BIN" sample "$ckpt" "${@:2}" >"$work/$1" 2>"$work/out" </dev/null || rc=$?
}
text a --prompt 'the sea' --tokens 60 --seed 3
check "a sample" ended 0
check "which checkpoint it is from" says 'step-00000150, step 150'
check "it begins with the prompt" grep -qa '^the sea' "$work/a"
check "it has as many bytes as were asked for" test "$(wc -c <"$work/a")" = 68
text b --prompt 'the sea' --tokens 60 --seed 3
check "the same seed: the same text" cmp "$work/a" "$work/b"
text b --prompt 'the sea' --tokens 60 --seed 4
check "another seed: another text" test "$(cmp -s "$work/a" "$work/b"; echo $?)" = 1
text c --prompt 'the sea' --tokens 40 --temperature 0 --seed 1
text d --prompt 'the sea' --tokens 40 --temperature 0 --seed 2
check "temperature 0: no chance" cmp "$work/c" "$work/d"
text e --prompt 'the sea' --tokens 40 --top-k 1 --temperature 5 --seed 9
check "the best of one: the same as temperature 0" cmp "$work/c" "$work/e"
text f --prompt 'the sea' --tokens 40 --temperature 1000 --top-k 0
check "the hotter, the more kinds of bytes" test "$(fold -w 1 <"$work/f" | LC_ALL=C sort -u | wc -l)" -gt "$(fold -w 1 <"$work/c" | LC_ALL=C sort -u | wc -l)"
check "what was learnt shows: letters, spaces and points" test "$(tr -d 'a-z .\n' <"$work/a" | wc -c)" -lt 20

# A window is 32 tokens: longer prompts and texts move it on.
text g --prompt 'the moon over the sea of calm water and a bright old ship under sails' --tokens 50
check "a prompt longer than the window" ended 0
check "its text is whole" test "$(wc -c <"$work/g")" = 120
text h --prompt 'the sea' --tokens 0
check "no tokens: the prompt" cmp "$work/h" <(echo 'the sea')

run "$MT_BIN" sample "$work/run/run" --prompt x --tokens 1
check "the folder of a run: its newest" ended 0
check "the folder of a run: says which" says 'step-00000150'
mv "$work/run/run/ckpt/step-00000150" "$work/kept"
run "$MT_BIN" sample "$work/run/run" --prompt x --tokens 1
check "without it: the one before" says 'step-00000100'

refused() { # CODE WHAT ARGUMENTS...
    run "$MT_BIN" sample "${@:3}"
    check "$2: exit code $1" ended "$1"
}
refused 2 "no checkpoint"
refused 2 "two checkpoints" "$work/kept" "$work/kept"
refused 2 "an empty prompt" "$work/kept" --prompt ''
refused 2 "an unknown option" "$work/kept" --promt x
check "an unknown option: usage" says '^moetitan: .*usage: moetitan sample'
for value in -1 many 1e400 nan ''; do refused 2 "tokens '$value'" "$work/kept" --tokens "$value"; done
for value in -0.5 hot nan; do refused 2 "temperature '$value'" "$work/kept" --temperature "$value"; done
refused 5 "a folder without checkpoints" "$work" --prompt x
check "a folder without checkpoints: named" says "$work"
refused 5 "nothing there" "$work/nowhere" --prompt x
finish
