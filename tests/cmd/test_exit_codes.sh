# test: timeout=240
# Every exit code that a training run on one rank has, each from its cause, with what the message must say; and exit.json. The
# others: 1 tests/base/test_status.c, 8, 9 and 11 tests/comm/test_fail_mpi.sh.
source tests/check.sh
source tests/train/tiny.sh
tiny_setup
n=0
trained() { # EXPECTED WHAT OPTIONS...   a run in a folder of its own, which is there before
    n=$((n + 1))
    [[ $1 == 6 ]] || mkdir -p "$work/$n/run"
    run train "$work/$n" train.steps=4 optim.warmup_steps=0 "${@:3}"
    check "$2: exit code $1" ended "$1"
}
reason() { # FOLDER CODE NAME PATTERN   what its exit.json says
    grep -qE "^\{\"code\":$2,\"name\":\"$3\",\"message\":\"[^\"]*$4.*,\"step\":[0-9]+,\"rank\":0,\"time\":\"[-0-9]+T[:0-9]+Z\",\"job\":" "$1/run/exit.json"
}

trained 0 "a good run"
run "$MT_BIN" ckpt verify "$work/1/run/ckpt/step-00000004"
check "its checkpoint is whole" ended 0
check "a good run: exit.json" reason "$work/1" 0 OK ''

# 2: configuration
trained 2 "an unknown key" train.stepz=5
check "an unknown key: what was meant" says 'did you mean "?train\.steps'
sed 's/  layers: 2/  layesr: 2/' "$work/tiny.yaml" >"$work/slip.yaml"
run "$MT_BIN" train "$work/slip.yaml"
check "an unknown key in the file: exit code 2" ended 2
check "an unknown key in the file: where" says "^moetitan: $work/slip.yaml:4:3: .*model\.layesr.*model\.layers"
trained 2 "no number" model.dim=wide
trained 2 "batches that do not divide" train.micro_batch=3
run "$MT_BIN" train "$work/nowhere.yaml"
check "no such file: exit code 2" ended 2
check "no such file: named" says nowhere.yaml
run "$MT_BIN" train
check "no file: exit code 2" ended 2
trained 2 "no data" data.train=
check "no data: exit.json" reason "$work/$n" 2 CONFIG 'data\.train is empty'
trained 2 "an instruction set of another machine" device.isa="$([[ $(uname -m) == x86_64 ]] && echo neon || echo avx2)"

# 3: memory
trained 3 "too little memory" device.memory=64KiB
check "too little memory: needed and allowed" says 'needs [0-9]+ bytes in the device arena and device.memory allows 65536: [0-9]+ too many'
check "too little memory: the table" says '^  device +[0-9.]+ +[0-9.]+  f32 masters$'
check "too little memory: what would help" says '^  [a-z_.]+=[0-9A-Za-z.]+ +device saves [0-9]+ \([0-9.]+ MiB\); costs: '
check "too little memory: that it is not enough" says '^The least that was found, with .*, still takes device [0-9]+, host [0-9]+ on a rank: [0-9]+ too many'
check "too little memory: exit.json, and nothing else" test "$(ls "$work/$n/run")" = exit.json
check "too little memory: exit.json" reason "$work/$n" 3 NOFIT 'device\.memory allows 65536'
run train "$work/never" train.steps=4 optim.warmup_steps=0 device.memory=64KiB
check "without a folder none is made" test ! -e "$work/never/run"
trained 3 "too little host memory" host.memory=1KiB
check "too little host memory: says which" says 'host.memory allows 1024'
run "$MT_BIN" train configs/jupiter-952b.yaml train.seq_len=32 data.mode=windows data.train="$work/corpus" run.dir="$work/large" \
    --fake-ranks 384
check "more ranks than this machine holds: exit code 3" ended 3
check "more ranks than this machine holds: how much, and where to look" \
    says '384 ranks on this machine need [0-9.]+ GiB \(384 arenas of .* GiB: [0-9.]+ too many\. `moetitan plan CONFIG --ranks 384`'
trained 2 "a memory node that there is not" host.numa=1023
check "a memory node that there is not: named" says 'host\.numa: .*no node 1023'
trained 2 "no memory node" host.numa=near
check "no memory node: what there is" says 'host\.numa: "near" is neither auto nor off nor the number'

# 4: data
trained 4 "no such data" data.train="$work/nothing"
check "no such data: named" says "$work/nothing"
check "no such data: exit.json" reason "$work/$n" 4 DATA nothing
cp "$work/corpus.idx" "$work/cut.idx"
head -c 100 "$work/corpus.bin" >"$work/cut.bin"
trained 4 "tokens cut off" data.train="$work/cut"
check "tokens cut off: named" says 'cut\.bin'
head -c 50 "$work/corpus.idx" >"$work/cut.idx"
trained 4 "an index cut off" data.train="$work/cut"
check "an index cut off: named" says 'cut\.idx'
trained 4 "a token that the vocabulary has not" model.vocab=110
check "a token that the vocabulary has not: named" says 110
trained 4 "too few tokens for one sequence" train.seq_len=64Ki train.micro_batch=1 train.global_batch=1

# 5: checkpoints
trained 5 "no checkpoint where one is required" ckpt.resume=required
check "no checkpoint where one is required: says so" says 'no valid checkpoint'
check "no checkpoint where one is required: exit.json" reason "$work/$n" 5 CKPT 'no valid checkpoint'
run train "$work/c" train.steps=21 train.eval_interval=0
check "checkpoints of steps 7, 14 and 21" test "$(echo "$work"/c/run/ckpt/step-000000{07,14,21}/manifest.json | xargs ls | wc -l)" = 3
damage() { # FILE   one bit of its first tensor, which is a parameter: a sample does not read the optimizer's state
    local at=$((8 + $(od -An -tu8 -N 8 "$1") + 101))
    local byte
    byte=$(od -An -tu1 -j $at -N 1 "$1")
    printf "\\x$(printf %02x $((byte ^ 1)))" | dd of="$1" bs=1 seek=$at conv=notrunc status=none
}
damage "$work/c/run/ckpt/step-00000021/rank-00000.safetensors"
run "$MT_BIN" ckpt verify "$work/c/run/ckpt/step-00000021"
check "a damaged checkpoint: exit code 5" ended 5
check "a damaged checkpoint: the tensor is named" says 'step-00000021.*(weight|bias|optim)'
run "$MT_BIN" sample "$work/c/run/ckpt/step-00000021" --prompt a --tokens 1
check "a sample of it: exit code 5" ended 5
run train "$work/c" train.steps=21 train.eval_interval=0 ckpt.resume=required
check "the one before is taken" ended 0
check "the damaged one is named" says 'step-00000021'
check "it goes on from step 14" says 'going on from .*step-00000014'
for step in 07 14 21; do damage "$work/c/run/ckpt/step-000000$step/rank-00000.safetensors"; done
run train "$work/c" train.steps=21 ckpt.resume=required
check "all damaged: exit code 5" ended 5
run train "$work/c" train.steps=21
check "all damaged, resume: auto: exit code 5" ended 5
check "all damaged: named, with what to do" says 'step-00000021, step-00000014, step-00000007 .* are damaged .*ckpt\.resume: never'
run train "$work/c" train.steps=7 train.eval_interval=0 ckpt.resume=never
check "all damaged, resume: never: begins anew" ended 0
check "all damaged, resume: never: later ones are set aside" test -d "$work/c/run/ckpt/step-00000021.aside"
rm -r "$work"/c/run/ckpt/step-*
run train "$work/c" train.steps=7 train.eval_interval=0
check "removed: begins anew" ended 0
trained 5 "weights of a model of another shape" init.from="$work/1/run/ckpt/step-00000004" model.dim=48
check "weights of a model of another shape: names a tensor" says 'embed\.weight|layers\.|norm\.weight'

# 6: the operating system
mkdir -p "$work/file" && touch "$work/file/run"
run train "$work/file" train.steps=4 optim.warmup_steps=0
check "a file where the folder should be: exit code 6" ended 6
check "a file where the folder should be: named" says "'?run"
trained 6 "a folder that cannot be made" run.dir=/proc/nowhere/run
check "a folder that cannot be made: named" says '/proc/nowhere'

mkdir -p "$work/locked/run"
exec 9<"$work/locked/run"
flock -n 9
run train "$work/locked" train.steps=4 optim.warmup_steps=0
exec 9<&-
check "a folder of another job: exit code 6" ended 6
check "a folder of another job: its exit.json is not touched" test ! -e "$work/locked/run/exit.json"
chmod 755 "$work"
mkdir -p "$work/nodata/run/metrics.jsonl" # a folder where a file should be
run train "$work/nodata" train.steps=4 optim.warmup_steps=0
check "metrics that cannot be written: exit code 6" ended 6
check "metrics that cannot be written: exit.json" reason "$work/nodata" 6 IO 'metrics\.jsonl'

# 7: the device, here a machine that says nonsense of its processors
faults=$work/faults.so
check "the library of faults builds" ${CC:-gcc} -std=c11 -D_GNU_SOURCE -O2 -fPIC -shared -o "$faults" tests/interpose/faults.c -ldl
if compgen -G '/sys/devices/system/node/node*/cpulist' >/dev/null; then
    MT_FAULT_CPULIST=1 LD_PRELOAD=$faults trained 7 "a memory node without a list of processors" host.numa=auto
    check "a memory node without a list of processors: named" says 'cpulist: "none" is no list of processors'
    check "a memory node without a list of processors: exit.json" reason "$work/$n" 7 DEVICE cpulist
fi

# 10: not finite
run train "$work/bad" train.steps=100 optim.warmup_steps=0 train.eval_interval=0 \
    optim.lr=10 optim.weight_decay=10 # each step multiplies the weights by 1 - 10 x 10
check "a loss that is no number: exit code 10" ended 10
check "a loss that is no number: says what and what to do" says 'step [0-9]+: the loss is .* and the gradient norm .*optim\.lr'

check "a loss that is no number: exit.json" reason "$work/bad" 10 NONFINITE 'the loss is'

# 75: stopped
trained 75 "stopped after two steps" run.stop_after=2
check "stopped after two steps: exit.json" reason "$work/$n" 75 PREEMPTED 'stopped after step 2'
check "stopped after two steps: says how to go on" says 'stopped after step 2 of 4; .* goes on'
finish
