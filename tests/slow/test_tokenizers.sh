# test: timeout=1200
# Published vocabularies on hard texts and 19 languages: the ids of the tokenizers library. Fetches both: needs the network, and Python.
source tests/check.sh

oracle=${MT_BUILD%/*}/oracle-tokenizers
if ! tests/oracle/tokenizers_venv.sh "$oracle" >"$work/out" 2>&1; then
    echo "skipped: tests/slow/test_tokenizers.sh: cannot install the oracle: $(tail -n 1 "$work/out")"
    echo "0 passed, 0 failed, 1 skipped"
    exit 0
fi
run "$oracle/venv/bin/python" tests/oracle/tokenizers_oracle.py real "$oracle/real"
check "the oracle's ids" ended 0
cp "$work/out" "$work/oracle"
while read -r name digest; do
    cp "$work/oracle" "$work/out"
    check "$name: the library's ids of the hard texts are those it gave when this was written" says "^$name: .* hard texts $digest$"
    run "$MT_BIN" data pack "$oracle/real/texts.jsonl" -o "$work/$name" --tokenizer "$oracle/real/$name.json"
    check "$name: packs" ended 0
    cat >"$work/compare.py" <<'PYTHON'
import sys, numpy
kind = numpy.uint16 if open(sys.argv[1] + ".idx", "rb").read()[17] == 8 else numpy.int32
ours, theirs = numpy.fromfile(sys.argv[1] + ".bin", kind), numpy.fromfile(sys.argv[2], numpy.int32)
print(len(ours), "and", len(theirs), "ids")
sys.exit(not (len(ours) == len(theirs) and len(ours) > 2000000 and (ours == theirs).all()))
PYTHON
    run "$oracle/venv/bin/python" "$work/compare.py" "$work/$name" "$oracle/real/$name.ids"
    check "$name: ids equal" ended 0
done <<'DIGESTS'
gpt2 1ba03990c951e09d
qwen d190c07fe55164f1
llama3 909c95805125dad1
deepseek 1d730f0d5c897a50
DIGESTS
finish
