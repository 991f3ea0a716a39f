# test: timeout=120
# Ranks of one process through the command line: the same losses as one rank, checkpoints that fit any number of ranks.
source tests/check.sh
source tests/train/tiny.sh
tiny_setup
base=(train.dtype=f32 train.global_batch=16 train.steps=12 train.eval_interval=6 ckpt.interval=0 optim.decay_ratio=0)

losses() { sed -nE 's/.*"step": ([0-9]+),.*"loss": ([^,]+),.*/\1 \2/p' "$1/run/metrics.jsonl"; }
# Equal numbers of lines, and every loss within 1e-6 of the other's.
near() { # A B
    paste <(losses "$1") <(losses "$2") >"$work/out"
    awk -v n=0 'NF != 4 || $1 != $3 || !(($2 - $4) ^ 2 <= (1e-6 * $4) ^ 2) { bad = 1 } { n++ } END { exit bad || n != 12 }' "$work/out"
}
check_ranks() { # NAME ARGUMENTS...
    run train "$work/$1" "${base[@]}" "${@:2}"
    check "$1: trains" ended 0
    check "$1: losses of one rank" near "$work/one" "$work/$1"
}
run train "$work/one" "${base[@]}"
check "one rank" ended 0
check_ranks two --fake-ranks 2
check_ranks eight_ep4 --fake-ranks 8 mesh.ep=4 train.micro_batch=1
check_ranks eight_replicas --fake-ranks 8 mesh.ep=2 mesh.replicas=2 train.micro_batch=1
owned="shard.groups=[{match: '*.experts.*', gather: f32}, {match: '*', placement: owned}]"
check_ranks owned --fake-ranks 4 mesh.ep=2 train.micro_batch=1 "$owned"
run train "$work/owners" "${base[@]}" --fake-ranks 4 train.micro_batch=1 train.steps=5 train.eval_interval=0 "$owned" run.print_owners=true
check "who owns what" says 'owns layers.1.attn.q.weight \[32, 32\], placed there'
check_ranks weights_stay --fake-ranks 8 mesh.ep=2 train.micro_batch=1 shard.host_weights=all shard.reshard_dense=node shard.reshard_experts=none
check_ranks layer_order --fake-ranks 4 mesh.ep=2 train.micro_batch=1 train.micro_order=layer shard.prefetch=2 shard.keep_last=1

# Stopped on 4 ranks, gone on from by other numbers of ranks.
run train "$work/cut" "${base[@]}" --fake-ranks 4 mesh.ep=2 train.micro_batch=1 run.stop_after=6
check "stopped on 4 ranks" ended 75
for ranks in 1 2 8; do
    cp -r "$work/cut" "$work/on$ranks"
    run train "$work/on$ranks" "${base[@]}" --fake-ranks $ranks train.micro_batch=1
    check "gone on from on $ranks" ended 0
    check "gone on from on $ranks: losses of one rank" near "$work/one" "$work/on$ranks"
done
# From two levels to one.
run train "$work/levels" "${base[@]}" --fake-ranks 8 mesh.ep=2 train.micro_batch=1 run.stop_after=6
check "stopped in two levels" ended 75
run train "$work/levels" "${base[@]}" --fake-ranks 8 mesh.ep=2 train.micro_batch=1 shard.hierarchy=flat
check "gone on in one level" ended 0
check "gone on in one level: losses of one rank" near "$work/one" "$work/levels"
cp -r "$work/cut" "$work/same"
run train "$work/same" "${base[@]}" --fake-ranks 4 mesh.ep=2 train.micro_batch=1
check "gone on from on the same ranks" ended 0
run train "$work/never" "${base[@]}" --fake-ranks 4 mesh.ep=2 train.micro_batch=1
check "the same ranks, never stopped" ended 0
check "the same ranks: the same bits" same_checkpoint "$work/same" "$work/never" 00000012

# Placement may change where a run goes on; what samples from it reads the configuration of the run.
cp -r "$work/cut" "$work/placed"
run train "$work/placed" "${base[@]}" --fake-ranks 4 mesh.ep=2 train.micro_batch=1 "$owned"
check "gone on from, placed otherwise" ended 0
run "$MT_BIN" ckpt diff "$work/placed/run/ckpt/step-00000012" "$work/never/run/ckpt/step-00000012"
check "placed otherwise: the same bits" says 'tensors, equal to the bit$'
run "$MT_BIN" sample "$work/placed/run" --tokens 4 --prompt "the "
check "a sample of placed parameters" ended 0

# What cannot be.
run train "$work/bad" "${base[@]}" --fake-ranks 2 "shard.groups=[{match: '*', placement: flat}]"
check "experts cut" ended 2
check "experts cut: says so" says 'routed expert is always owned'
run train "$work/bad" "${base[@]}" --fake-ranks 3
check "a batch that does not divide" ended 2
run train "$work/bad" "${base[@]}" --fake-ranks 8 mesh.ep=8 train.micro_batch=1 model.experts=8
check "experts across nodes" ended 2
check "experts across nodes: says so" says 'mesh.ranks_per_node'
run train "$work/bad" "${base[@]}" --fake-ranks x
check "no number of ranks" ended 2
finish
