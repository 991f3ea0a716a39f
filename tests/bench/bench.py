"""bench.py BUILD full|quick|PATTERN|quick:PATTERN: train steps of moetitan and PyTorch in turn, and moetitan's kernels beside their rooflines.

Every contender is one process (PyTorch's ranks: one each) that makes a step when it is asked to; nobody computes meanwhile. A sample
in which the system took the processor away often is dropped from the clock's figures; where too few are left, processor time is
compared instead, and the table says so (it is fair with one thread; PyTorch's threads spin while they wait, and that counts). PATTERN
is a part of a comparison's name. Everything measured goes to BUILD/bench.json, and as tables to BUILD/bench.md.
"""
import json
import os
import platform
import select
import socket
import statistics
import subprocess
import sys
import time

OPTION = {"vocab": "vocab", "dim": "dim", "layers": "layers", "heads": "heads", "kv_heads": "kv_heads",
          "head_dim": "head_dim", "qk_norm": "qk_norm", "ffn": "ffn", "experts": "experts", "top_k": "top_k",
          "expert_ffn": "expert_ffn"}
BASE = {"vocab": 4096, "dim": 512, "layers": 2, "heads": 8, "kv_heads": 8, "head_dim": 64, "qk_norm": False, "ffn": 1536,
        "experts": 64, "top_k": 8, "expert_ffn": 256, "seq": 512, "batch": 4}
MODELS = {
    "moe-2k": BASE,
    "moe-8k": BASE | {"batch": 16},
    "dense": BASE | {"experts": 0, "top_k": 0, "expert_ffn": 0, "layers": 6},
    # torchtitan's Qwen3-MoE debug model, of 315.8 M parameters
    "debug": BASE | {"vocab": 2048, "dim": 256, "layers": 8, "heads": 16, "kv_heads": 8, "head_dim": 128, "qk_norm": True,
                     "expert_ffn": 768, "seq": 2048, "batch": 1},
}
# model, type, threads of each rank, ranks, optimizer. The first four are the quick ones.
COMPARISONS = [("moe-2k", "bf16", 1, 1, "adamw"), ("moe-2k", "bf16", 1, 1, "muon"), ("moe-2k", "f32", 1, 1, "adamw"),
               ("dense", "bf16", 1, 1, "adamw"), ("dense", "f32", 1, 1, "adamw"), ("debug", "bf16", 2, 1, "adamw"),
               ("moe-2k", "bf16", 2, 1, "adamw"), ("moe-2k", "f32", 2, 1, "adamw"), ("moe-8k", "bf16", 2, 1, "adamw"),
               ("dense", "bf16", 2, 1, "adamw"), ("moe-2k", "bf16", 1, 2, "adamw"), ("moe-2k", "bf16", 1, 4, "adamw")]
# Those in which PyTorch's compiled forms take part too, and how long they may take to be ready.
COMPILED = [("moe-2k", "bf16", 1, 1, "adamw"), ("moe-2k", "f32", 1, 1, "adamw"), ("dense", "bf16", 1, 1, "adamw")]
READY_SECONDS = {False: 120, True: 100}
# Seconds of samples of a comparison, after which it ends if it has LEAST_ROUNDS.
SECONDS = {"full": 45, "quick": 18}
LEAST_ROUNDS, MOST_ROUNDS = 4, 9
# Kernels by themselves: a small model round each, and the operations of its step that are wanted.
KERNELS = {
    "attention, 2,048 tokens, head width 64": (BASE | {"layers": 1, "seq": 2048, "batch": 1, "vocab": 256},
                                               ["attention_fwd", "attention_bwd"]),
    "grouped, 32 rows an expert": (BASE | {"layers": 1, "seq": 256, "batch": 1, "vocab": 256}, ["grouped_fwd", "grouped_bwdx", "grouped_bwdw"]),
    "grouped, 256 rows an expert": (BASE | {"layers": 1, "vocab": 256}, ["grouped_fwd", "grouped_bwdx", "grouped_bwdw"]),
    "cross-entropy, vocabulary 128Ki": (BASE | {"vocab": 128 << 10, "dim": 64, "heads": 1, "kv_heads": 1, "layers": 1, "experts": 0, "top_k": 0, "expert_ffn": 0, "seq": 256,
                                         "batch": 2}, ["xent"]),
    "AdamW": (BASE, ["adamw"]),
    "Muon": (BASE | {"layers": 1, "optimizer": "muon"}, ["muon_momentum", "newton_schulz", "muon_apply"]),
}

# Bytes a FLOP of the optimizers' passes, whose views span what lies between their matrices too.
BYTES = {"adamw": 28 / 12, "muon_momentum": 14 / 6, "muon_apply": 10 / 3}


class Worker:
    """A process, its lines in and out; `ready` once it has made a step."""

    def __init__(self, command, env=None):
        self.began = time.monotonic()
        self.p = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
        self.others = []

    def wait_ready(self, seconds=600):
        """RuntimeError, and the end of its processes, if that takes longer."""
        try:
            if not select.select([self.p.stdout], [], [], seconds)[0]:
                raise RuntimeError(f"not ready in {seconds} seconds")
            word, cpu, what = self.line().split()
        except RuntimeError:
            for p in [self.p] + self.others:
                p.kill()
                p.wait()
            raise
        assert word == "ready"
        self.first = {"wall": time.monotonic() - self.began, "cpu": float(cpu)}
        self.what = what
        return self

    def line(self):
        text = self.p.stdout.readline()
        if not text:
            raise RuntimeError(f"{self.p.args[:2]} ended with exit status {self.p.wait()}")
        return text

    def ask(self, command):
        self.p.stdin.write(command + "\n")
        self.p.stdin.flush()
        return self.line()

    def sample(self, command):
        wall, cpu, preempted = self.ask(command).split()
        return {"wall": float(wall), "cpu": float(cpu) * (1 + len(self.others)), "preempted": int(preempted)}

    def ops(self):
        self.p.stdin.write("ops\n")
        self.p.stdin.flush()
        out = {}
        while (text := self.line()) != "end\n":
            name, calls, seconds, flops, size = text.split()
            out[name] = {"calls": int(calls), "seconds": float(seconds), "flops": float(flops), "bytes": float(size)}
        return out

    def close(self):
        for p in [self.p] + self.others:
            if p.stdin:
                p.stdin.close()
        for p in [self.p] + self.others:
            p.wait()


def ours(build, shape, dtype, threads, ranks, optimizer):
    options = [f"model.{o}={str(shape[k]).lower()}" for k, o in OPTION.items()]
    options += [f"train.seq_len={shape['seq']}", f"train.global_batch={shape['batch']}",
                f"train.micro_batch={shape['batch'] // ranks}", f"train.dtype={dtype}", "recompute.policy=none",
                f"device.workers={min(threads * ranks, os.cpu_count())}", "data.train=none", "model.first_dense=0", "optim.warmup_steps=0"]
    if optimizer == "adamw":
        options.append("optim.groups=[{match: '*', optimizer: adamw}]")
    return Worker([f"{build}/bench/bench_step", str(ranks)] + options)


def torch(shape, dtype, threads, ranks, optimizer, form, compiled):
    job = shape | {"dtype": dtype, "threads": threads, "optimizer": optimizer, "form": form, "compiled": compiled}
    command = [sys.executable, "-B", "tests/bench/bench_torch.py", json.dumps(job)]
    if ranks == 1:
        return Worker(command)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    env = dict(os.environ, WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    w = Worker(command, env | {"RANK": "0"})
    w.others = [subprocess.Popen(command, stdin=subprocess.DEVNULL, env=env | {"RANK": str(r)}) for r in range(1, ranks)]
    return w


def kept(samples):
    """Those during which the processor was hardly ever taken away: less than five times a second."""
    return [s for s in samples if s["preempted"] < 5 * s["wall"] + 1]


def summary(samples, what):
    x = sorted(s[what] for s in samples)
    return {"median": statistics.median(x), "low": x[0], "high": x[-1], "samples": len(x)}


def in_turn(workers, command, seconds):
    samples, began = {name: [] for name in workers}, time.monotonic()
    for i in range(MOST_ROUNDS + 1):
        if i > LEAST_ROUNDS and time.monotonic() - began > seconds:
            break
        for name, w in workers.items():
            time.sleep(0.03)  # until OpenMP's threads of the one before have stopped spinning
            s = w.sample(command)
            if i:  # the first round warms up
                samples[name].append(s)
    return samples


def compare(samples):
    clean = {n: kept(s) for n, s in samples.items()}
    what = "wall" if all(len(c) >= 3 for c in clean.values()) else "cpu"
    return what, {n: summary(clean[n] if what == "wall" else samples[n], what) for n in samples}


def contenders(build, case, quick):
    model, dtype, threads, ranks, optimizer = case
    shape = MODELS[model]
    starts = {"moetitan": lambda: ours(build, shape, dtype, threads, ranks, optimizer)}
    forms = ["loop"] if optimizer == "muon" else ["loop", "grouped"] if shape["experts"] else ["loop"]
    for form in forms:
        for compiled in [False] if quick or case not in COMPILED else [False, True]:
            name = f"torch {form if shape['experts'] else 'dense'} {'compiled' if compiled else 'eager'}"
            starts[name] = lambda f=form, c=compiled: torch(shape, dtype, threads, ranks, optimizer, f, c)
    out = {}
    for name, start in starts.items():
        try:
            out[name] = start().wait_ready(READY_SECONDS[name.endswith("compiled")])
        except RuntimeError as e:
            print(f"  {name}: {e}")
    return out


def step_case(build, case, quick, roof):
    name = "{} {} {} threads {} ranks {}".format(*case)
    print(f"\n{name}", flush=True)
    workers = contenders(build, case, quick)
    result = {"case": name, "first_step": {n: w.first for n, w in workers.items()}}
    tokens = MODELS[case[0]]["seq"] * MODELS[case[0]]["batch"]
    for command, part in [("step", 1)] if case[3] > 1 else [("step", 0.8), ("update", 0.2)]:
        samples = in_turn(workers, command, part * SECONDS["quick" if quick else "full"])
        what, s = compare(samples)
        best = min(v["median"] for n, v in s.items() if n != "moetitan")
        result[command] = {"by": what, "of": s, "ratio": best / s["moetitan"]["median"], "samples": samples}
        for n, v in s.items():
            rate = f"{tokens / v['median']:8.0f} tokens/s" if command == "step" else " " * 17
            print(f"  {command:6} {n:24} {1e3 * v['median']:9.1f} ms ({1e3 * v['low']:.1f} to {1e3 * v['high']:.1f}, "
                  f"{v['samples']}) {rate}  {what}")
        print(f"  {command:6} best of PyTorch / moetitan: {result[command]['ratio']:.2f}", flush=True)
    if case[3] == 1 and case[2] == 1:
        result["share"] = share_of_step(workers["moetitan"], result["step"], roof)
        print(f"  step   {100 * result['share']:.1f}% of the core's measured peak")
    result["tokens"] = tokens
    result["memory"] = {n: int(w.ask("memory")) for n, w in workers.items()}
    print("  first step, seconds from the process's start: " +
          ", ".join(f"{n} {f['wall']:.2f} ({f['cpu']:.2f} of processors)" for n, f in result["first_step"].items()))
    print("  memory " + ", ".join(f"{n} {m / 2**20:.0f} MiB" for n, m in result["memory"].items()))
    for w in workers.values():
        w.close()
    return result


def ranks_lose(steps, out):
    """What ranks of one process cost, on the same number of workers: as a share of one rank's tokens/s."""
    def of(threads, ranks):
        name = f"moe-2k bf16 {threads} threads {ranks} ranks adamw"
        return next((s["step"] for s in steps if s["case"] == name), None)
    workers = min(2, os.cpu_count())
    one = of(workers, 1)
    for ranks in (2, 4):
        many = of(1, ranks)
        if one and many and min(ranks, os.cpu_count()) == workers:
            what = "wall" if one["by"] == many["by"] == "wall" else "cpu"
            a, b = (statistics.median(s[what] for s in x["samples"]["moetitan"]) for x in (one, many))
            out[f"{ranks} ranks lose"] = {"by": what, "share": 1 - a / b}
            print(f"\n{ranks} ranks on {workers} workers: {100 * (1 - a / b):.1f}% less than one rank ({what})")


def share_of_step(worker, step, roof):
    ops = worker.ops()
    flops = sum(o["flops"] for n, o in ops.items()
                if n.startswith(("linear", "logits", "grouped_fwd", "grouped_bwd", "attention", "newton")))
    return flops / 1e9 / step["of"]["moetitan"]["median"] / roof["peak"]


def measure_roof(worker):
    return dict(zip(("bf16", "f32", "l3", "read", "update"), (float(x) for x in worker.ask("roof").split())))


def kernel_case(build, name, dtype, quick):
    shape, wanted = KERNELS[name]
    w = ours(build, shape, dtype, 1, 1, shape.get("optimizer", "adamw")).wait_ready()
    runs = [(measure_roof(w), w.ops()) for _ in range(3 if quick else 7)]
    w.close()
    rows = []
    for op in wanted:
        share, seconds = [], []
        for roof, ops in runs:
            o = {k: sum(v[k] for n, v in ops.items() if n in (op, op + "_into")) for k in ("seconds", "flops", "bytes")}
            peak = 0 if op in BYTES or op == "xent" else roof[dtype]
            size = o["flops"] * BYTES[op] if op in BYTES else o["bytes"]
            bound = max(o["flops"] / peak / 1e9 if peak else 0, size / max(roof["read"], roof["update"]) / 1e9)
            share.append(bound / o["seconds"])
            seconds.append(o["seconds"])
        rows.append({"op": op, "seconds": statistics.median(seconds), "share": statistics.median(share),
                     "low": min(share), "high": max(share)})
        r = rows[-1]
        print(f"  {name:40} {op:14} {1e3 * r['seconds']:8.2f} ms  {100 * r['share']:5.1f}% of its roofline "
              f"({100 * r['low']:.0f} to {100 * r['high']:.0f})", flush=True)
    return {"kernels": name, "rows": rows, "roof": runs[0][0]}


def tables(out):
    """Everything as Markdown."""
    r = out["roof"]
    text = [f"{out['cpu']}, {out['cores']} cores, {out['isa']}: a core has {r['bf16']:.0f} GFLOP/s in bf16 and {r['f32']:.0f} in f32, reads "
            f"{r['l3']:.0f} GB/s from L3 and {r['read']:.0f} from memory, reads and writes {r['update']:.0f}.", ""]
    for s in out["steps"]:
        share = f" {100 * s['share']:.1f}% of the core's peak." if "share" in s else ""
        tokens = s["tokens"]
        text += [f"{s['case']}: {s['step']['ratio']:.2f}x PyTorch's best in a step"
                 + (f", {s['update']['ratio']:.2f}x in the update" if "update" in s else "") + f" (by {s['step']['by']}).{share}", "",
                 "| | step, ms (range) | tokens/s | update, ms | first step, s | most memory |", "|---|---|---|---|---|---|"]
        for n, v in s["step"]["of"].items():
            u = f"{1e3 * s['update']['of'][n]['median']:.1f}" if "update" in s else ""
            text.append(f"| {n} | {1e3 * v['median']:,.0f} ({1e3 * v['low']:,.0f} to {1e3 * v['high']:,.0f}) | {tokens / v['median']:,.0f} | {u} | "
                        f"{s['first_step'][n]['wall']:.2f} | {s['memory'][n] / 2**20:,.0f} MiB |")
        text.append("")
    text += ["| kernel | operation | ms | share of its roofline (range) |", "|---|---|---|---|"] if out["kernels"] else []
    for k in out["kernels"]:
        text += [f"| {k['kernels']} | {x['op']} | {1e3 * x['seconds']:.1f} | {100 * x['share']:.0f}% ({100 * x['low']:.0f} to {100 * x['high']:.0f}) |"
                 for x in k["rows"]]
    text += [""] + [f"{n}: {100 * v['share']:.1f}% ({v['by']})" for n, v in out.items() if n.endswith(" lose")]
    return "\n".join(text) + "\n"


def cpu_model():
    with open("/proc/cpuinfo") as f:
        names = [line.split(":")[1].strip() for line in f if line.startswith(("model name", "CPU part"))]
    return names[0] if names else platform.machine()


def main():
    build, what, began = sys.argv[1], sys.argv[2], time.monotonic()
    quick, _, pattern = what.partition(":") if what.startswith("quick") else ("", "", what)
    w = ours(build, BASE | {"layers": 1}, "bf16", 1, 1, "adamw").wait_ready()
    roof = measure_roof(w)
    out = {"cpu": cpu_model(), "isa": w.what, "cores": os.cpu_count(), "roof": roof, "steps": [], "kernels": []}
    w.close()
    print(f"{out['cpu']}, {out['cores']} cores, {out['isa']}: a core has {roof['bf16']:.0f} GFLOP/s bf16, {roof['f32']:.0f} f32, "
          f"reads {roof['l3']:.0f} GB/s from L3 and {roof['read']:.0f} from memory, reads and writes {roof['update']:.0f}")
    named = [c for c in COMPARISONS if pattern in ("full", "{} {} {} threads {} ranks {}".format(*c)) or
             pattern and pattern in "{} {} {} threads {} ranks {}".format(*c)]
    for case in named if pattern else COMPARISONS[:4]:
        peak = roof[case[1]]
        out["steps"].append(step_case(build, case, quick, {"peak": peak}))
    if pattern in ("", "full", "kernels"):
        print("\nkernels, one core")
        out["kernels"] = [kernel_case(build, n, "bf16", quick) for n in KERNELS]
    ranks_lose(out["steps"], out)
    out["minutes"] = (time.monotonic() - began) / 60
    with open(f"{build}/bench.json", "w") as f:
        json.dump(out, f, indent=1)
    with open(f"{build}/bench.md", "w") as f:
        f.write(tables(out))
    print(f"\n{out['minutes']:.1f} minutes; written to {build}/bench.json and, as tables, {build}/bench.md")


main()
