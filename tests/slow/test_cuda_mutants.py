# test: timeout=1800
"""Faults planted in the CUDA device's own sources, one at a time: each is noticed under the emulator, by its name.

    python3 tests/slow/test_cuda_mutants.py [PATTERN]     those whose name has PATTERN in it

A mutant is a source with one text changed, compiled and linked in place of the original into a test program of tests/cuemu; the
flavours it names (p plain, a ASan + UBSan, t TSan) must each end other than well. Unchanged sources, built the same way in
every flavour, end well.
"""
import glob
import os
import re
import subprocess
import sys
import tempfile

BUILD = os.path.dirname(os.environ.get("MT_BUILD", "build/release"))
CUDA = os.environ.get("CUDA_HOME", "/usr/local/cuda") + "/include"
FLAVOUR = {"p": ("plain", "release", "-O1 -g"),
           "a": ("asan", "asan", "-O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all"),
           "t": ("tsan", "tsan", "-O1 -g -fno-omit-frame-pointer -fsanitize=thread -fno-builtin-memset -fno-builtin-memcpy "
                                 "-fno-builtin-memmove")}
INCLUDES = f"-Isrc -I. -Icuda -Icuda/include -Itests -Itests/cuemu -Itests/cuemu/include -isystem {CUDA}".split()
TILE = ("cuda/include/mt_tile.cuh", "cuda/grouped.cu")
# name, file changed (and file compiled), text, what it becomes, program, its argument, who must notice
MUTANTS = [
    ("nothing, attention", "cuda/attention_fwd.cu", "namespace", "namespace", "kernels", "attention_fwd", ""),
    ("nothing, streams", "cuda/device_cuda.c", "static", "static", "streams", "", ""),
    ("nothing, ranks", "cuda/collective.c", "static", "static", "ranks", "", ""),
    ("nothing, documents", "cuda/documents.cu", "namespace", "namespace", "dnn", "", ""),
    ("nothing, tile", TILE, "load(", "load(", "kernels", "grouped_fwd", ""),
    ("nothing, sort", "cuda/sort.cu", "namespace", "namespace", "kernels", "route_sort", ""),
    ("attention: no barrier before the keys are read", "cuda/attention_fwd.cu",
     "mt_cp_async_wait<1>();\n        __syncthreads();", "mt_cp_async_wait<1>();", "kernels", "attention_fwd", "pt"),
    ("attention: keys overwritten early", "cuda/attention_fwd.cu", "scale * MT_LOG2E);\n        __syncthreads();",
     "scale * MT_LOG2E);", "kernels", "attention_fwd", "t"),
    ("attention: waits for one copy too few", "cuda/attention_fwd.cu", "mt_cp_async_wait<1>", "mt_cp_async_wait<2>", "kernels",
     "attention_fwd", "p"),
    ("attention: a token sees none of itself", "cuda/attention_fwd.cu", "key > row + c / 2 * 8", "key >= row + c / 2 * 8",
     "kernels", "attention_fwd", "p"),
    ("attention, backward: queries overwritten early", "cuda/attention_bwd.cu",
     "mt_att_mix<A, OTHER>(dk, dp, m->a);\n            __syncthreads();", "mt_att_mix<A, OTHER>(dk, dp, m->a);", "kernels",
     "attention_bwd", "t"),
    ("tile, f32: no barrier after the load", TILE, "load(s->b, b, n0, k, k1);\n            __syncthreads();",
     "load(s->b, b, n0, k, k1);", "kernels", "grouped_fwd", "pt"),
    ("tile, bf16: waits for one copy too few", TILE, "mt_cp_async_wait<1>", "mt_cp_async_wait<2>", "kernels", "grouped_fwd", "p"),
    ("grouped: one row too many", "cuda/grouped.cu", "m0 + i < g.end", "m0 + i <= g.end", "kernels", "grouped_fwd_into", "p"),
    ("sort: counters read while they move on", "cuda/sort.cu", "        }\n        __syncwarp();\n    }", "        }\n    }",
     "kernels", "route_sort", "t"),
    ("sort: a scan's sums overwritten early", "cuda/sort.cu", "*carry += all;\n    __syncthreads();", "*carry += all;", "kernels",
     "route_sort", "t"),
    ("norm: one element too many", "cuda/rmsnorm.cu", "i < packs; i += LANES) {\n        float f[V], g[V];",
     "i <= packs; i += LANES) {\n        float f[V], g[V];", "kernels", "rmsnorm_fwd", "pa"),
    ("documents: each in the place behind its own", "cuda/documents.cu", "int k = before[t] - mine;", "int k = before[t] - mine + 1;",
     "dnn", "", "p"),
    ("documents: lengths read before they are written", "cuda/documents.cu",
     "    }\n    __syncthreads();\n    for (int64_t k = t; k < d.room", "    }\n    for (int64_t k = t; k < d.room", "dnn", "", "pt"),
    ("host: a stream waits for nothing", "cuda/device_cuda.c", "cudaStreamWaitEvent(d->queue[s->id].lane.stream, "
     "mt_cuda_event(d, ev.stream, ev.seq), 0)", "cudaSuccess", "streams", "", "pt"),
    ("host: a read is not waited for", "cuda/device_cuda.c", "cudaEventSynchronize(mt_cuda_event(d, s->id, s->seq))",
     "cudaSuccess", "streams", "", "pt"),
    ("host: a member's buffer is free before all have pulled", "cuda/collective.c", "return meet(g, at, 1, e);",
     "return MT_OK;", "ranks", "", "pt"),
    ("host: pieces pulled before all have come", "cuda/collective.c", "MT_TRY(meet(g, at, 0, e));", "", "ranks", "", "pt"),
    ("host: a stretch is not given before another stream waits for it", "cuda/graphs.c", "inside || s->id == MT_COMPUTE ?",
     "s->id == MT_COMPUTE ?", "training", "bits", "p"),
    ("host: half a copy", "cuda/launch.c", "return done(c, cudaMemcpyAsync(c->arg[0], c->arg[1], (size_t)c->bytes[0], kind",
     "return done(c, cudaMemcpyAsync(c->arg[0], c->arg[1], (size_t)c->bytes[0] / 2, kind", "kernels", "copy_h2d", "p"),
]


def build(flavour, changed, compiled, source, program, work):
    name, library, flags = FLAVOUR[flavour]
    folder = f"{BUILD}/cuemu/{name}"
    path = f"{work}/{os.path.basename(changed)}"
    with open(path, "w") as f:
        f.write(source)
    target = path if changed == compiled else compiled
    obj = f"{work}/mutant.o"
    if compiled.endswith(".cu"):
        command = ["g++", "-std=c++17", "-fno-strict-aliasing", "-pthread", "-w", "-x", "c++", "-include", "cuemu.h"]
    else:
        command = ["gcc", "-std=c11", "-D_GNU_SOURCE", "-pthread", "-w", f"-I{BUILD}/{library}"]
    subprocess.run(command + flags.split() + [f"-I{work}"] + INCLUDES + ["-c", target, "-o", obj], check=True)
    original = f"{folder}/{os.path.splitext(compiled)[0]}.o"
    objects = [o for o in glob.glob(f"{folder}/cuda/*.o") + glob.glob(f"{folder}/tests/cuemu/src/*.o") +
               glob.glob(f"{folder}/tests/cuemu/*.o") if o != original and not re.search(r"/(test_\w+|dnn_shapes)\.o$", o)]
    out = f"{work}/mutant"
    libs = "-lyaml -lcjson -lpcre2-8 -lutf8proc -lzstd -lm -lpthread -ldl".split()
    if library == "release":  # the one that has MPI, where there is any
        libs += subprocess.run(["scripts/mpi.sh", "libs"], capture_output=True, text=True).stdout.split()
    subprocess.run(["g++"] + flags.split() + ["-rdynamic", "-o", out, f"{folder}/tests/cuemu/test_{program}.o", obj] + objects +
                   [f"{BUILD}/{library}/libmoetitan.a"] + libs, check=True)
    return out


def verdict(flavour, mutant, work):
    name, files, old, new, program, argument, _ = mutant
    changed, compiled = files if isinstance(files, tuple) else (files, files)
    with open(changed) as f:
        source = f.read()
    assert old in source, f"{name}: {changed} has no such text"
    out = build(flavour, changed, compiled, source.replace(old, new, 1), program, work)
    env = dict(os.environ, ASAN_OPTIONS="detect_leaks=0", TSAN_OPTIONS="halt_on_error=1:exitcode=66:atexit_sleep_ms=0")
    run = subprocess.run(["setarch", "-R", out] + ([argument] if argument else []), env=env, capture_output=True, text=True,
                         timeout=600)
    return run.returncode, run.stdout[-300:] + run.stderr[-300:]


def main():
    passed = failed = skipped = 0
    for mutant in MUTANTS:
        if len(sys.argv) > 1 and sys.argv[1] not in mutant[0]:
            continue
        for flavour in mutant[-1] or "pat":
            if not os.path.exists(f"{BUILD}/cuemu/{FLAVOUR[flavour][0]}/test_{mutant[4]}"):
                print(f"skipped: {mutant[0]}: `make cuemu` has not built test_{mutant[4]}, {FLAVOUR[flavour][0]}")
                skipped += 1
                continue
            with tempfile.TemporaryDirectory() as work:
                code, text = verdict(flavour, mutant, work)
            good = (code != 0) == bool(mutant[-1])
            passed, failed = passed + good, failed + (not good)
            print(f"{'ok    ' if good else 'FAILED'} {FLAVOUR[flavour][0]}: {mutant[0]}: exit status {code}", flush=True)
            if not good:
                print(text)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    sys.exit(failed > 0)


main()
