# test: timeout=240
# Checkpoints on the nodes' own disks: four processes that stand for two nodes (mesh.ranks_per_node), gone on from when a node's folder
# is lost, both are, a file is damaged, or the processes are other ones.
source tests/check.sh
source tests/train/tiny.sh
source tests/comm/mpirun.sh
tiny_setup
base=(train.dtype=f32 train.steps=12 train.eval_interval=0 train.micro_batch=1 mesh.ranks_per_node=2 device.workers=1)
ranks() { # PROCESSES IN_FOLDER [key=value ...]
    mkdir -p "$2"
    (cd "$2" && exec timeout 60 mpirun -n "$1" "$MT_BIN" train "$work/tiny.yaml" "${base[@]}" "${@:3}")
}
local_run() { ranks "$1" "$2" ckpt.local_dir=local ckpt.local_interval=10 "${@:3}"; }
node() { echo "$1"/local/*/*."$2"; } # FOLDER NUMBER

run ranks 4 "$work/whole" ckpt.interval=0
check "without local checkpoints" ended 0

# It ends without a checkpoint of its last step: 7 is in the run's folder, 10 on the nodes. What is done to it is done in one place:
# the folder on a node is named by the run's.
at=$work/at
run ranks 4 "$at" run.stop_after=7
check "stopped at step 7" ended 75
run local_run 4 "$at" ckpt.interval=0 ckpt.at_end=false
check "two nodes" ended 0
check "two nodes: told" says 'local +local/.*\.0: on this node 2 x .*; 2 nodes'
check "two nodes: saved" says 'step +10  local checkpoint on 2 nodes'
for i in 0 1; do
    check "node $i has it" test "$(ls "$(node "$at" $i)/ckpt")" = step-00000010
    check "node $i has the files of all four ranks" test "$(find "$(node "$at" $i)" -name 'rank-*.safetensors' | wc -l)" = 4
done
check "both have the same" diff -r -x node.json "$(node "$at" 0)" "$(node "$at" 1)"
check "node 1 says whose they are" grep -qx '{"own": \[2, 3\], "copies": \[0, 1\]}' "$(node "$at" 1)/ckpt/step-00000010/node.json"
run "$MT_BIN" ckpt ls --verify "$at/local"
check "ckpt ls of ckpt.local_dir" ended 0
check "ckpt ls of ckpt.local_dir: both" test "$(grep -cE 'ckpt/step-00000010  step 10 .* valid: files of 2 ranks of this node and copies of 2, of 4$' "$work/out")" = 2
run "$MT_BIN" ckpt diff "$(node "$at" 0)/ckpt/step-00000010" "$(node "$at" 1)/ckpt/step-00000010"
check "of two nodes each has all" ended 0
mv "$at" "$work/cut"
again() { rm -rf "$at" && cp -r "$work/cut" "$at"; }

goes_on() { # WHAT FROM
    run local_run 4 "$at" ckpt.interval=0
    check "$1: goes on" ended 0
    check "$1: from $2" says "going on from $2\$"
    check "$1: the bits of the run that was never stopped" same_bits
}
same_bits() {
    "$MT_BIN" ckpt diff "$at/run/ckpt/step-00000012" "$work/whole/run/ckpt/step-00000012" >"$work/diff" 2>&1 &&
        grep -q 'equal to the bit$' "$work/diff"
}
again
goes_on "all there" 'local/.*/step-00000010'
for i in 0 1; do
    again
    rm -r "$(node "$at" $i)"
    goes_on "node $i is lost" 'local/.*/step-00000010'
done
again
rm -r "$at/local"
goes_on "both are lost" run/ckpt/step-00000007

again # each node lacks one of its own ranks' files
rm "$(node "$at" 0)"/ckpt/*/rank-00001.* "$(node "$at" 1)"/ckpt/*/rank-00002.*
goes_on "own files lost" 'local/.*/step-00000010'
again
rm "$(node "$at" 0)"/ckpt/*/rank-00001.* "$(node "$at" 1)"/ckpt/*/rank-00001.*
goes_on "a rank's files lost" run/ckpt/step-00000007
check "a rank's files lost: named" says 'passing over a checkpoint: .*no node of this job has rank-00001.safetensors'

again
for i in 0 1; do
    printf '\377\377\377\377' | dd of="$(echo "$(node "$at" $i)"/ckpt/*/rank-00003.safetensors)" bs=1 seek=4100 conv=notrunc 2>/dev/null
done
goes_on "damaged" run/ckpt/step-00000007
check "damaged: named" says "passing over a checkpoint: .*rank-00003.safetensors"

again # two processes, on one node
run local_run 2 "$at"
check "two processes of one node" ended 0
check "two processes: from step 10" says 'going on from local/.*/step-00000010$'

again # the run's folder has a newer one
rm -r "$at/run/ckpt"
cp -r "$work/whole/run/ckpt" "$at/run/ckpt"
run local_run 4 "$at"
check "a newer one in the run's folder" says 'going on from run/ckpt/step-00000012$'

# As many as there is time for; one stays.
run local_run 4 "$work/often" ckpt.interval=0 ckpt.local_interval=1 ckpt.local_slice=4KiB
check "often" ended 0
newest=$(sed -nE 's/^step +([0-9]+)  local .*/\1/p' "$work/out" | tail -1)
for i in 0 1; do
    check "often: node $i has the newest alone" test "$(ls "$(node "$work/often" $i)/ckpt")" = "$(printf 'step-%08d' "$newest")"
done
check "often: both have the same" diff -r -x node.json "$(node "$work/often" 0)" "$(node "$work/often" 1)"
check "often: no difference to the run" "$MT_BIN" ckpt diff "$work/often/run/ckpt/step-00000012" "$work/whole/run/ckpt/step-00000012"

# Each process a node: none has all.
run local_run 4 "$work/four" ckpt.interval=0 ckpt.at_end=false mesh.ranks_per_node=1
check "four nodes" ended 0
one=$(node "$work/four" 2)/ckpt/step-00000010
run "$MT_BIN" ckpt ls "$work"/four/local/*
check "four nodes: ls" test "$(grep -cE 'complete: files of 1 ranks of this node and copies of 1, of 4$' "$work/out")" = 4
run "$MT_BIN" ckpt show "$one"
check "four nodes: show" ended 0
check "four nodes: show: its own" says 'rank-00002.safetensors .*  this node.s$'
check "four nodes: show: its ward's" says 'rank-00001.safetensors .*  copy of another node.s$'
check "four nodes: show: others" says 'rank-00003.safetensors .*  on other nodes$'
run "$MT_BIN" ckpt verify "$one"
check "four nodes: verify" ended 0
check "four nodes: verify: how far" says 'valid, step 10; files of 1 ranks .* of 4: whether the others are sound'
for words in "diff $one $one" "reshard $one $work/re --ranks 2" "export $one $work/hf"; do
    # shellcheck disable=SC2086 # words
    run "$MT_BIN" ckpt $words
    check "four nodes: ckpt ${words%% *}" ended 5
    check "four nodes: ckpt ${words%% *}: why not" says "is what one node has of a checkpoint, without rank-0000[03].safetensors"
done
printf '\377\377\377\377' | dd of="$one/rank-00001.safetensors" bs=1 seek=4100 conv=notrunc 2>/dev/null
run "$MT_BIN" ckpt ls --verify "$(node "$work/four" 2)"
check "four nodes: damage of a copy" ended 5
check "four nodes: damage of a copy: named" says "NOT VALID: .*rank-00001.safetensors.* is damaged"
rm "$one/rank-00001.json"
run "$MT_BIN" ckpt show "$one"
check "four nodes: a copy is lost" says "cannot find '.*rank-00001.json'"

# One node cannot write: none has it, nothing is left, and training goes on.
again
rm -r "$(node "$at" 0)"/ckpt "$(node "$at" 1)/ckpt"
echo >"$(node "$at" 1)/ckpt"
run local_run 4 "$at" ckpt.interval=0
check "a node that cannot write: the run ends well" ended 0
check "a node that cannot write: said" says 'there is no local checkpoint of step 10; training goes on'
check "a node that cannot write: nothing is left" test -z "$(ls "$(node "$at" 0)/ckpt")"
check "a node that cannot write: the same bits" same_bits

mkdir -p "$work/refused"
echo >"$work/refused/local"
run local_run 4 "$work/refused"
check "a local folder that cannot be made" ended 6
finish
