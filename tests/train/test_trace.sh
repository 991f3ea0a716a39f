# test: timeout=120
# train.trace: the files of a traced run, read by another reader of JSON; the run's bits; several processes.
source tests/check.sh
source tests/train/tiny.sh
tiny_setup
base=(--fake-ranks 4 mesh.ep=2 train.micro_batch=1 train.steps=4 train.eval_interval=0 optim.warmup_steps=0)

saved=run/ckpt/step-00000004/rank-00000.safetensors # the configuration beside it differs
same_weights() { cmp "$work/plain/$saved" "$1/$saved" >"$work/out" 2>&1; }

run train "$work/plain" "${base[@]}"
check "untraced" ended 0
check "untraced: no trace" test -z "$(find "$work/plain/run" -name 'trace*')"
cat >>"$work/tiny.yaml" <<END
extends: traced.yaml
END
cat >"$work/traced.yaml" <<END
train:
  trace: {steps: [2, 3]}
END
run train "$work/traced" "${base[@]}"
check "traced" ended 0
check "traced: says so" says '^trace +step 3, 4 ranks, [0-9.]+ ms: run/trace-00000003.json'
check "traced: a table" says '^  compute +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-3]$'
check "traced: exposed" says '^  exposed gather +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-3] +[0-9.]+ +[0-9.]+ +[0-9.]+%$'
check "traced: two steps" test "$(cd "$work/traced/run" && echo trace*)" = \
    "trace-00000002-summary.json trace-00000002.json trace-00000003-summary.json trace-00000003.json"
check "traced: the same metrics" same_curve "$work/plain" "$work/traced"
check "traced: the same checkpoint" same_weights "$work/traced"
check "traced: the options are kept" grep -q '^  trace.steps: \[2, 3\]' "$work/traced/run/config.yaml"

run train "$work/first" "${base[@]}" train.trace.steps=4 train.trace.ranks=1
check "one rank" ended 0
check "one rank: of four" says '^trace +step 4, 1 ranks'

# A folder in the place of the trace: told, and the training goes on.
mkdir -p "$work/blocked/run/trace-00000002.json"
run train "$work/blocked" "${base[@]}"
check "no place for it" ended 0
check "no place for it: says so" says "cannot write 'run/trace-00000002.json'"
check "no place for it: the same checkpoint" same_weights "$work/blocked"

if command -v python3 >/dev/null; then
    cat >"$work/look.py" <<'END'
import json, sys

def same(what, a, b):
    if a != b:
        sys.exit(f"{what}: {a} is not {b}")

def look(path, ranks):
    """Events of each row in order, one an operation; both ends of every arrow."""
    rows, ends, names = {}, {}, set()
    for e in json.load(open(path))["traceEvents"]:
        if e["ph"] == "X":
            rows.setdefault((e["pid"], e["tid"]), []).append(e)
        elif e["ph"] in "sf":
            ends.setdefault(e["id"], {})[e["ph"]] = e
        elif e["name"] == "thread_name":
            names.add(e["args"]["name"])
    same("ranks", sorted({r for r, _ in rows}), ranks)
    assert {"compute", "gather", "reduce", "host code"} <= names
    count = {}
    for (rank, row), events in rows.items():
        events.sort(key=lambda e: (e["ts"], e["dur"]))
        for a, b in zip(events, events[1:]):
            if a["ts"] + a["dur"] > b["ts"] + 1e-6:
                sys.exit(f"rank {rank}, row {row}: {a} and {b} overlap")
        if events[0]["cat"] != "host":
            same("positions", sorted(e["args"]["seq"] for e in events), list(range(1, len(events) + 1)))
            count[rank] = count.get(rank, 0) + len(events)
    waits = sum(e["cat"] == "wait" for events in rows.values() for e in events)
    same("arrows", len(ends), waits)
    for arrow in ends.values():
        same("ends", sorted(arrow), ["f", "s"])
        for e in arrow.values():
            assert any(x["ts"] <= e["ts"] <= x["ts"] + x["dur"] for x in rows[(e["pid"], e["tid"])]), e
        assert arrow["s"]["ts"] <= arrow["f"]["ts"] + 0.0015, arrow
    kernel = next(e for e in rows[(ranks[0], 0)] if e["name"] == "linear_fwd")["args"]
    assert kernel["N"] > 0 and kernel["flops"] == 2 * kernel["N"] * kernel["O"] * kernel["I"], kernel
    return count

def summary(path, ranks):
    s = json.load(open(path))
    same("ranks of the summary", [r["rank"] for r in s["per_rank"]], ranks)
    for r in s["per_rank"]:
        same("sum of the causes", sum(r["spent_ns"].values()), r["step_ns"])
    shares = sum(c["share"] for c in s["causes"].values())
    assert abs(shares - 1) < 1e-4, shares
    for c in s["causes"].values():
        assert 0 <= c.get("hidden", 0) <= 1, c
    return sum(o["calls"] for o in s["operations"])

folder, ranks, parts = sys.argv[1], [int(r) for r in sys.argv[2].split(",")], sys.argv[3:]
count = {}
for p in parts or ["trace-00000003.json"]:
    count.update(look(f"{folder}/{p}", ranks if not parts else [int(p[-10:-5])]))
same("ranks", sorted(count), ranks)
calls = summary(f"{folder}/trace-00000003-summary.json", ranks)
assert calls < sum(count.values()), "waits are no operations"
print(sorted(count.items()))
END
    look() { python3 "$work/look.py" "$@" >"$work/out" 2>&1; }
    check "what the files say" look "$work/traced/run" 0,1,2,3
else
    echo "skipped: no python3 to read the traces with"
fi

if command -v mpirun >/dev/null && grep -q 'MT_HAVE_MPI 1' "$MT_BUILD/base/features.h"; then
    source tests/comm/mpirun.sh
    cd "$work" && mkdir mpi && cd mpi || exit 1
    run timeout 60 mpirun -n 4 "$MT_BIN" train ../tiny.yaml "${base[@]:2}"
    check "processes" ended 0
    check "processes: one table a step" test "$(grep -c '^trace ' "$work/out")" = 2
    check "processes: the same checkpoint" same_weights "$work/mpi"
    if command -v python3 >/dev/null; then
        check "processes: what the files say" look run 0,1,2,3 trace-00000003-0000{0,1,2,3}.json
    fi
else
    echo "skipped: no mpirun, or a build without MPI"
fi
finish
