# test: timeout=180 alone
# `moetitan doctor` on the nodes of a real Slurm: every rank's GPU, a node whose GPU lacks memory, named, and what a chain makes of it.
# Rates are measured and not judged (--tolerance 0): times decide no test.
source tests/check.sh
source tests/slurm/cluster.sh
source tests/train/tiny.sh
tiny_setup
cluster 2
cd "$work" || exit
mkdir bin
cat >bin/nvidia-smi <<'END'
#!/bin/bash
# Stands in for NVIDIA's, for four GPUs; the third of n1 has lost memory.
id=${1#--id=} memory=97871
[[ $(hostname) != n1 || $id != 2 ]] || memory=80000
case $2 in
*memory.total*) echo "$memory, 1980, NVIDIA GH200 $id" ;;
*bus_id*) printf '%08X:01:00.0\n' $((9 + id)) ;;
*ecc*) echo 0 ;;
*slowdown) echo "Not Active" ;;
*) exit 2 ;;
esac
END
chmod 755 bin/nvidia-smi
export PATH=$work/bin:$PATH
sed -i 's/ecc/none/' bin/nvidia-smi # one question that this driver cannot answer
doctor() { # SRUN'S ARGUMENTS -- DOCTOR'S
    local ours=()
    while [[ $1 != -- ]]; do
        ours+=("$1")
        shift
    done
    run timeout 60 srun --mpi=pmix "${ours[@]}" "$MT_BIN" doctor --quick --tolerance 0 "${@:2}"
}

doctor -N 2 --ntasks-per-node=4 --gres=gpu:4 -- tiny.yaml run.dir=run
check "a bad GPU: exit code 7" ended 7
check "a line for each node" test "$(grep -cE '^n[12] +4 ' "$work/out")" = 2
check "every rank sees four GPUs, two rates between ranks" \
    test "$(grep -cE '^n[12] .* 4 +(78\.1|95\.6) +1\.98 +0 +- +[0-]( +no device){3} +[0-9.]+ +[0-9.]+  .*NVIDIA GH200 0$' "$work/out")" = 2
check "why nothing is copied to GPUs is told" test "$(grep -c '^n[12]: note: nothing is copied to, from or between GPUs, there is no device: ' "$work/out")" = 2
check "the rank with the bad GPU is named, and why" says '^n1: rank 2: GPU GiB is 78\.1, and should be 86\.0, 0\.9 of the ranks. median'
check "no other is" test "$(grep -c '^n[12]: ranks\? ' "$work/out")" = 1
check "in one line" says '^moetitan: .*not fit to train.*: n1; noted in run/jobs/exclude$'
check "noted" grep -qx n1 run/jobs/exclude
check "who shares processors is told" says '^n1: note: ranks 0-3 share processors with other ranks of their node \(rank 0 on n1: '

doctor -N 2 --ntasks-per-node=4 --gres=gpu:4 -- --cluster "$root/configs/clusters/jupiter.yaml"
check "less memory than the cluster file says: both nodes" says 'not fit to train.*: n1,n2$'
doctor -w n2 -N 1 --ntasks-per-node=4 --gres=gpu:4 --
check "the good node alone: exit code 0" ended 0
check "the good node alone: fit" says '^all nodes are fit$'
doctor -w n2 -N 1 --ntasks-per-node=4 --gpus-per-task=1 --gpu-bind=single:1 --
check "tasks that see one GPU each" says '^n2 +4 .* 1 +95\.6 .*NVIDIA GH200 0$'
if [[ -d /sys/bus/pci/devices && $(nproc) -ge 2 ]]; then
    # processors of another GPU's memory node: folders of the system that say so, and ranks that are bound against them
    mkdir -p devices/0009:01:00.0 devices/000a:01:00.0
    echo 0 >devices/0009:01:00.0/local_cpulist
    echo 1 >devices/000a:01:00.0/local_cpulist
    run timeout 60 srun --mpi=pmix -w n2 -N 1 --ntasks-per-node=2 --gres=gpu:4 unshare --mount bash -c \
        "mount --bind devices /sys/bus/pci/devices && exec taskset -c \$((1 - SLURM_LOCALID)) $MT_BIN doctor --quick --tolerance 0"
    check "processors of another GPU: told" \
        says '^n2: note: ranks 0-1 may use processors that are not beside the GPU \(rank 0 on n2: 1, its GPU 0009:01:00\.0 is beside 0\)'
    check "processors of another GPU: and no fault of the node" ended 0
fi
doctor -w n2 -N 1 --ntasks-per-node=4 --gres=gpu:2 --
check "more ranks than GPUs: exit code 8" ended 8
check "more ranks than GPUs: said" says 'local rank 2 has no GPU: its node shows 2'

# a chain: its first job gets the bad node and ends; the next stays away from it
run "$MT_BIN" submit tiny.yaml train.steps=9 train.global_batch=4 train.micro_batch=1 train.eval_interval=0 device.workers=1 run.dir=chain \
    --site "$root/slurm/sites/generic.yaml" --nodes 1 --gres gpu:4 --time 5m --check true --tolerance 0
check "submitted" ended 0
check "the chain ends" soon 90 bash -c '[[ -z $(squeue -h) ]]'
read -r first second third < <(cut -d' ' -f1 chain/jobs/chain | xargs)
cp "chain/jobs/$first.log" "$work/out"
check "its first job named the node" says 'not fit to train.*: n1; noted'
check "and ended with 7" grep -q '"code":[[:space:]]*7,' "chain/jobs/$first/end.json"
check "the next job trained on the other" grep -q '"nodes":.*"n2"' "chain/jobs/$second/begin.json"
check "to the end" test "$(wc -l <chain/metrics.jsonl)" = 9
check "and cancelled its successor" in_state "$third" CANCELLED
finish
