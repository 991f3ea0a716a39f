"""PyTorch's side of `make bench-gpu`: attention of the shapes in bench.c, and steps of the model in bench.sh.

    bench_torch.py FLOPS PEAK     of a token, and of the GPU a second, by which MFU counts; 0: it is not told
"""
import json
import subprocess
import sys

import torch
import torch.nn.functional as nnf

DOCUMENT = 4096
FLOPS, PEAK = (float(x) for x in sys.argv[1:3])
MODEL = {"vocab": 32768, "dim": 2048, "layers": 8, "heads": 16, "kv_heads": 4, "head_dim": 128, "qk_norm": True, "experts": 32,
         "top_k": 4, "expert_ffn": 1024, "seq": 4096, "batch": 4, "dtype": "bf16", "threads": 8, "optimizer": "muon",
         "device": "cuda", "form": "loop", "compiled": False}


def seconds(run):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for runs in (3, 20):
        begin.record()
        for _ in range(runs):
            run()
        end.record()
        end.synchronize()
    return 1e-3 * begin.elapsed_time(end) / runs


def attention(tokens, h, g, a, b):
    new = lambda heads, width: torch.randn(tokens // DOCUMENT, heads, DOCUMENT, width, device="cuda", dtype=torch.bfloat16,
                                           requires_grad=True)
    q, k, v = new(h, a), new(g, a), new(g, b)
    call = lambda: nnf.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=h != g)
    pairs = tokens * (DOCUMENT + 1) / 2
    with torch.no_grad():
        forward = seconds(call)
    out = call()
    grad = torch.randn_like(out)
    backward = seconds(lambda: torch.autograd.grad(out, (q, k, v), grad, retain_graph=True))
    for name, took, flops in (("attention_fwd", forward, 2 * pairs * h * (a + b)),
                              ("attention_bwd", backward, 2 * pairs * h * (3 * a + 2 * b))):
        print(f"PyTorch {name}, N={tokens} H={h} G={g} A={a} B={b}: {1e6 * took:.1f} us, {1e-12 * flops / took:.2f} TFLOP/s")


def steps(count=10):
    for form in ("loop", "grouped"):
        job = MODEL | {"form": form} | ({} if form == "loop" else {"optimizer": "adamw"})
        command = [sys.executable, "-B", "tests/bench/bench_torch.py", json.dumps(job)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as p:
            assert p.stdout.readline().startswith("ready")
            took = []
            for _ in range(count):
                p.stdin.write("step\n")
                p.stdin.flush()
                took.append(float(p.stdout.readline().split()[0]))
            p.stdin.close()
        best = min(took[1:])
        rate = job["seq"] * job["batch"] / best
        mfu = f", MFU {100 * rate * FLOPS / PEAK:.1f}%" if FLOPS > 0 and PEAK > 0 else ""
        print(f"PyTorch step, {form}, {job['optimizer']}: {1e3 * best:.2f} ms, {rate:.0f} tokens/s{mfu}")


print(f"PyTorch {torch.__version__} on {torch.cuda.get_device_name()}")
attention(16384, 32, 8, 128, 128)
attention(16384, 16, 16, 192, 128)
steps()
