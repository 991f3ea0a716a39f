# test: timeout=180
# What others read of a run: TensorBoard's event files by its own reader, where there is one, and by the format's rules; Prometheus's file.
source tests/check.sh
source tests/train/tiny.sh
tiny_setup
options=(train.steps=12 train.log_interval=4 train.eval_interval=6 run.tensorboard=true "run.prometheus=$work/run.prom")
run train "$work/a" "${options[@]}" run.stop_after=7
check "a run, stopped" ended 75
run train "$work/a" "${options[@]}"
check "and gone on" ended 0
cp "$work/run.prom" "$work/out"
check "Prometheus: a type for each number" says '^# TYPE moetitan_loss gauge$'
check "Prometheus: loss" says '^moetitan_loss\{run="run"\} [0-9.]+$'
check "Prometheus: the last step" says '^moetitan_step\{run="run"\} 12$'
check "Prometheus: each number once" test "$(grep -c '^moetitan_loss{' "$work/run.prom")" = 1
check "Prometheus: nothing is left beside it" test ! -e "$work/run.prom.tmp"
run train "$work/r" train.steps=3 optim.warmup_steps=0 "run.prometheus=$work/r.prom" moe.aux_loss_sequence=0.01 moe.z_loss=1e-3 moe.capacity_factor=1 \
    moe.routing=balanced train.log_interval=1
check "a run with losses of the router" ended 0
check "is told to be balanced by force" says 'routing   balanced by force'
check "and that its experts are" says 'experts 1\.00x forced  dropped 0\.00%'
cp "$work/r/run/metrics.jsonl" "$work/out"
check "names routing and losses" says '"routing": "balanced", "expert_balance": 1\.000, "dropped": 0\.000000, "aux_loss_sequence": [01]\.[0-9]+, "z_loss": [0-9]'
check "but not those without a coefficient" test -z "$(grep aux_loss_global "$work/out")"
cp "$work/r.prom" "$work/out"
check "Prometheus has them" says '^moetitan_z_loss\{run="run"\} [0-9.]+$'
run train "$work/b" train.steps=9 "run.prometheus=$work/no/such/folder.prom"
check "a folder that is not there does not end the run" ended 0
check "and is told" says "cannot write run.prometheus '.*/no/such/folder.prom': No such file"

cat >"$work/read.py" <<'PYTHON'
"""Every record's length and checksums, and the scalars, by the published format."""
import glob, json, struct, sys

def crc32c(data):
    c = 0xFFFFFFFF
    for byte in data:
        c ^= byte
        for _ in range(8):
            c = c >> 1 ^ (0x82F63B78 if c & 1 else 0)
    c ^= 0xFFFFFFFF
    return ((c >> 15 | c << 17) + 0xA282EAD8) & 0xFFFFFFFF

def fields(data):
    at = 0
    def varint():
        nonlocal at
        x = shift = 0
        while True:
            x |= (data[at] & 127) << shift
            shift += 7
            at += 1
            if data[at - 1] < 128:
                return x
    while at < len(data):
        key = varint()
        size = {0: None, 1: 8, 5: 4, 2: None}[key & 7]
        if key & 7 == 0:
            yield key >> 3, varint()
            continue
        if size is None:
            size = varint()
        yield key >> 3, data[at : at + size]
        at += size

assert crc32c(b"123456789") == ((0xE3069283 >> 15 | 0xE3069283 << 17) + 0xA282EAD8) & 0xFFFFFFFF
seen = {}
for path in sorted(glob.glob(sys.argv[1] + "/events.out.tfevents.*")):
    data = open(path, "rb").read()
    at = 0
    while at < len(data):
        (n,) = struct.unpack_from("<Q", data, at)
        assert crc32c(data[at : at + 8]) == struct.unpack_from("<I", data, at + 8)[0]
        event = data[at + 12 : at + 12 + n]
        assert crc32c(event) == struct.unpack_from("<I", data, at + 12 + n)[0]
        at += 16 + n
        top = dict(fields(event))
        for _, value in fields(top.get(5, b"")):
            v = dict(fields(value))
            seen.setdefault(v[1].decode(), {})[top.get(2, 0)] = struct.unpack("<f", v[2])[0]
lines = [json.loads(l) for l in open(sys.argv[2])]
for line in lines:
    key, tag = ("loss", "train/loss") if "loss" in line else ("val_loss", "valid/loss")
    assert abs(seen[tag][line["step"]] - line[key]) <= 1e-6 * line[key], (tag, line)
print(len(seen["train/loss"]), "losses,", len(seen["valid/loss"]), "validations")
PYTHON
run python3 "$work/read.py" "$work/a/run/tensorboard" "$work/a/run/metrics.jsonl"
check "records, checksums and numbers" ended 0
check "all steps are there" says '^12 losses, 2 validations$'

if python3 -c 'import tensorboard' 2>/dev/null; then
    cat >"$work/theirs.py" <<'PYTHON'
import sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
a = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0})
a.Reload()
print([x.step for x in a.Scalars("train/loss")])
PYTHON
    run python3 "$work/theirs.py" "$work/a/run/tensorboard"
    check "TensorBoard's reader: every step once" says '^\[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12\]$'
else
    skip "no python3 with tensorboard: its own reader was not asked"
fi
finish
