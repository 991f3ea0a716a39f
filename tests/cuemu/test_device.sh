# test: timeout=120
# device.type in the program itself, on a machine with or without a GPU, a driver, or CUDA in the build.
source tests/check.sh
source tests/train/tiny.sh
tiny_setup
base=(train.micro_batch=4 train.steps=2 train.eval_interval=0 optim.warmup_steps=0)

run train "$work/auto" "${base[@]}"
check "auto trains" ended 0
check "auto says what it found" says '^device .*(cuda/sm90|no CUDA|without CUDA|built for 9.0)'
run train "$work/cpu" "${base[@]}" device.type=cpu
check "cpu trains" ended 0
check "cpu does not look" silent_about CUDA

# cuda: it trains; or it says why it cannot, and what to change: exit code 7 for the machine, 2 for the build.
run train "$work/cuda" "${base[@]}" device.type=cuda
if [[ $rc == 0 ]]; then
    check "cuda trains" says '^device .*cuda/sm90'
else
    check "cuda: why not" says 'device.type: cuda is asked for: .*CUDA.*; set device.type: cpu'
    if says 'built without CUDA'; then expected=2; else expected=7; fi
    check "cuda: exit code $expected" ended $expected
fi
finish
