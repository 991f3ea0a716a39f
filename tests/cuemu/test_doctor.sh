# test: timeout=120
# `moetitan doctor` as processes that see one emulated GPU each: copies from each other's, a GPU that changes bytes, GPUs out of reach.
source tests/check.sh
source tests/comm/mpirun.sh
emulated=${MT_BUILD%/*}/cuemu/plain/moetitan
if ! "${MAKE:-make}" --no-print-directory -s "$emulated" >/dev/null 2>&1 || [[ ! -x $emulated ]]; then
    echo "skipped: NVIDIA's headers not found"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
export CUEMU_DEVICES=1
unset CUDA_VISIBLE_DEVICES
doctor() { run timeout 60 mpirun -n 3 "$emulated" doctor --quick --tolerance 0 "$@"; }
if ! grep -qxE '[01]' /proc/sys/kernel/yama/ptrace_scope 2>/dev/null && [[ $EUID != 0 && -e /proc/sys/kernel/yama/ptrace_scope ]]; then
    skip "processes may not read each other's memory here"
fi
node=$(hostname)
doctor
check "fit" ended 0
check "every GPU is there, with rates, also between GPUs" \
    says "^$node +3 +[0-9]+ .* 1 +[^ ]+ +[^ ]+ +[^ ]+ +[^ ]+ +1 +[0-9.]+ +[0-9.]+ +[0-9]+\.[0-9] +[0-9.]+ +-  "
check "nothing is out of reach" silent_about 'cannot reach'
check "the emulator's GPUs are one, and that is told" says 'note: .*ranks 0-2 have the same GPU as another rank of their node \(rank 0 on .*: ffff:00:00\.0\)'
run timeout 60 mpirun -n 2 "$emulated" doctor --quick --tolerance 0 : -n 1 env CUEMU_FLIP=0 "$emulated" doctor --quick --tolerance 0
check "a GPU that changes bytes: unfit" ended 7
check "a GPU that changes bytes: named" says "^$node: rank 2: CUDA device 0: byte 0 of 1048576 is "
CUEMU_APART=1 doctor
check "out of reach: no fault" ended 0
check "out of reach: told" says "^$node: note: its ranks see one GPU each, and cannot reach each other's; .*--gres=gpu:3 --gpu-bind=none"
finish
