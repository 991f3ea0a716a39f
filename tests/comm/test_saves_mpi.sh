# test: timeout=120
# Saves of several processes: one of them fails, or its store hangs; all give the save up, and the next succeeds.
source tests/check.sh
source tests/comm/mpirun.sh
source tests/train/tiny.sh
tiny_setup
faults=$work/store_faults.so
check "the faults build" ${CC:-gcc} -std=c11 -D_GNU_SOURCE -O2 -fPIC -shared -o "$faults" tests/interpose/store_faults.c
four=(train.steps=24 train.global_batch=8 train.micro_batch=1 mesh.ep=2 mesh.ranks_per_node=4 device.workers=1 ckpt.keep_last=100)
train_mpi() { # FOLDER ARGUMENTS...
    mkdir -p "$1"
    (cd "$1" && exec timeout 60 mpirun -n 4 "$MT_BIN" train "$work/tiny.yaml" "${four[@]}" "${@:2}")
}
steps() { (cd "$1/run/ckpt" && echo *); }

run train_mpi "$work/whole"
check "undisturbed" ended 0
check "undisturbed: its checkpoints" test "$(steps "$work/whole")" = "step-00000007 step-00000014 step-00000021 step-00000024"
run train "$work/fake" "${four[@]}" --fake-ranks 4
check "the same checkpoint as of ranks in one process" test -z "$(for f in "$work"/whole/run/ckpt/step-00000014/rank-*; do cmp "$f" "$work/fake/run/ckpt/step-00000014/${f##*/}" 2>&1; done)"

fault() { # NAME PROCESS FAULT ARGUMENTS...
    MT_STORE_FAULT=$3 MT_STORE_HITS=$work/hits.$1 LD_PRELOAD=$faults run train_mpi "$work/$1" "${@:4}"
    check "$1: happened" test -s "$work/hits.$1"
    check "$1: the run goes on" ended 0
    check "$1: told by whom it concerns" says "process $2: saving the checkpoint of step 7: "
    check "$1: told once" test "$(grep -c "process $2: saving the checkpoint of step 7: " "$work/out")" = 1
    check "$1: told by the first" says "there is no checkpoint of step 7; training goes on"
    check "$1: nothing is left, the next is there" test "$(steps "$work/$1")" = "step-00000014 step-00000021 step-00000024"
    check "$1: the same curve" same_curve "$work/whole" "$work/$1"
    run "$MT_BIN" ckpt verify "$work/$1/run/ckpt/step-00000014"
    check "$1: the next is sound" ended 0
}
fault eio 2 'pwrite EIO */step-00000007*/rank-00002.safetensors'
fault first 0 'fsync EIO */step-00000007*/rank-00000.safetensors'
fault hang 3 'pwrite hang */step-00000007*/rank-00003.safetensors' ckpt.timeout=4s
fault publishing 0 'rename EIO */step-00000007'
finish
