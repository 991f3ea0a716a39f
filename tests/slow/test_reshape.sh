# test: timeout=600
# Stopped on 8 ranks, gone on from by 1, 2, 4, 6, 8 and 12 with other expert groups, replicas, placements and places of the state:
# the losses of the run that never stopped, so the data go on where they were, and the checkpoint at the end is that run's.
source tests/check.sh
source tests/train/tiny.sh
tiny_setup
base=(train.dtype=f32 train.global_batch=48 train.micro_batch=1 train.steps=12 train.eval_interval=6 ckpt.interval=0 optim.decay_ratio=0)
owned="shard.groups=[{match: '*.experts.*', placement: owned}, {match: '*', placement: owned}]"
blocks="shard.groups=[{match: '*.experts.*', placement: owned}, {match: '*', placement: block}]"
eight=(--fake-ranks 8 mesh.ep=4)

losses() { sed -nE 's/.*"step": ([0-9]+),.*"loss": ([^,]+),.*/\1 \2/p' "$1/run/metrics.jsonl"; }
near() { # A B   within 1e-6, all 12
    paste <(losses "$1") <(losses "$2") >"$work/out"
    awk 'NF != 4 || $1 != $3 || !(($2 - $4) ^ 2 <= (1e-6 * $4) ^ 2) { bad = 1 } END { exit bad || NR != 12 }' "$work/out"
}
# The end of the run, tensor by tensor: largest difference over the norm.
close_to() { # A B
    "$MT_BIN" ckpt diff "$1/run/ckpt/step-00000012" "$2/run/ckpt/step-00000012" >"$work/out" 2>/dev/null
    awk '/ only in / || /\] and \[/ { bad = 1 } / relative / && !($NF <= 1e-3) { bad = 1 } END { exit bad || NR < 3 }' "$work/out"
}
run train "$work/whole" "${base[@]}" "${eight[@]}"
check "never stopped" ended 0
run train "$work/cut" "${base[@]}" "${eight[@]}" run.stop_after=6
check "stopped" ended 75

go_on() { # NAME OPTIONS...
    cp -r "$work/cut" "$work/$1"
    run train "$work/$1" "${base[@]}" "${@:2}"
    check "$1: goes on" ended 0
    check "$1: from step 6, every byte read once" says '^loaded    run/ckpt/step-00000006: .*; read 1.000 of'
    check "$1: the losses" near "$work/$1" "$work/whole"
    check "$1: the end" close_to "$work/$1" "$work/whole"
}
go_on one
go_on two --fake-ranks 2 mesh.ep=2 "$blocks"
go_on four --fake-ranks 4 mesh.ep=2 mesh.replicas=2 offload.masters=host offload.moments=host
go_on six --fake-ranks 6 mesh.ep=2 mesh.replicas=3 mesh.ranks_per_node=2 "$owned"
go_on eight --fake-ranks 8 mesh.ep=2 mesh.replicas=2 offload.moments=host
go_on twelve --fake-ranks 12 mesh.ep=4 "$owned"
go_on same "${eight[@]}"
check "same: the same bits" same_checkpoint "$work/same" "$work/whole" 00000012
finish
