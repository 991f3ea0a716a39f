# test: timeout=900
# What `make check-gpu` and `make bench-gpu` run is built where nvcc is, from sources and libraries that a bare machine has; without a
# GPU both say so.
source tests/check.sh
build=${MT_BUILD:-build/release}
gpu=${build%/*}/gpu
if ! "${MAKE:-make}" --no-print-directory -s gpu-build >"$work/log" 2>&1; then
    if grep -q "its static runtime are needed" "$work/log"; then
        echo "skipped: no nvcc"
        echo "0 passed, 0 failed, 1 skipped"
        exit 0
    fi
    tail -n 20 "$work/log"
fi
for program in here bench test_wrappers test_graphs test_kernels test_streams test_ranks test_training; do
    check "$program is built" test -x "$gpu/$program"
done
needs() { ldd "$1" | awk '{ print $1 }' | grep -vE '^(linux-vdso|lib(c|m|rt|dl|pthread)\.so|/lib|libgcc_s)' || true; }
check "they need the C library alone" test -z "$(needs "$gpu/bench")$(needs "$gpu/test_training")"
"$gpu/here" >"$work/here"
rc=$?
if [[ $rc == 0 ]]; then
    check "a GPU is named" grep -q '^GPU: ' "$work/here"
else
    check "no GPU: status 77" test $rc = 77
    for script in check bench; do
        out=$(tests/gpu/$script.sh "$gpu")
        check "$script-gpu ends with 77" test $? = 77
        check "$script-gpu says why" grep -q '^no GPU here: ' <<<"$out"
    done
fi
finish
