# test: timeout=300
# The real cuDNN's support check, without a GPU, on a GH200 that a file describes: it takes the forward attention of every shipped
# model, and the backward one or says why not; and it refuses what it cannot do.
source tests/check.sh
build=${MT_BUILD:-build/release}
shapes=${build%/*}/cuemu/dnn_shapes
home=${CUDA_HOME:-/usr/local/cuda}
library=$(ls -d "$home"/lib/libcudnn.so.9 "$home"/lib64/libcudnn.so.9 2>/dev/null | head -n 1)
# cuDNN wants the driver's library; the toolkit's stub has its names.
stub=$(ls -d "$home"/lib64/stubs/libcuda.so "$home"/lib/stubs/libcuda.so "$home"/targets/*/lib/stubs/libcuda.so 2>/dev/null | head -n 1)
"${MAKE:-make}" --no-print-directory -s cuemu >/dev/null 2>&1
if [[ ! -x $shapes || -z $library || -z $stub ]]; then
    echo "skipped: no cuDNN, or no stub of libcuda.so, in $home"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
ln -s "$stub" "$work/libcuda.so.1"
mapfile -t configs < <(ls configs/*.yaml configs/models/*.yaml)
out=$(LD_LIBRARY_PATH=$work:${library%/*} "$shapes" tests/cuemu/gh200.json "${configs[@]}")
check "every configuration is asked about" test "$(grep -c attention_fwd <<<"$out")" = "${#configs[@]}"
for config in "${configs[@]}"; do
    check "$config, forward" grep -qE "^$config attention_fwd ok: [0-9]+ bytes$" <<<"$out"
    check "$config, backward" grep -qE "^$config attention_bwd (ok: [0-9]+ bytes|own: .+)$" <<<"$out"
done
[[ $failed == 0 ]] || echo "$out"
finish
