#!/usr/bin/env python3
"""Verifies and lists a checkpoint with nothing of moetitan: only docs/checkpoints.md, safetensors and xxhash.

usage: read_ckpt.py RUN/ckpt/step-00000500
"""
import json
import pathlib
import sys

import numpy
import xxhash
from safetensors import safe_open


def need(ok, what):
    if not ok:
        sys.exit(f"not valid: {what}")


def read_manifest(folder):
    raw = (folder / "manifest.json").read_bytes()
    m = json.loads(raw)
    need(m["format"] == "moetitan checkpoint" and m["version"] in (1, 2), "manifest.json: another format")
    need(raw[-19:] == m["xxh3"].encode() + b'"}\n', "manifest.json: its own checksum is not at its end")
    need(xxhash.xxh3_64_hexdigest(raw[:-19]) == m["xxh3"], "manifest.json is damaged")
    for f in m["files"]:
        raw = (folder / f["name"]).read_bytes()
        need(len(raw) == f["bytes"] and xxhash.xxh3_64_hexdigest(raw) == f["xxh3"], f"{f['name']} is damaged")
    return m


def read_file(path, tensors):
    """Puts the rows that one rank wrote into the whole tensors."""
    told = json.loads(path.with_suffix(".json").read_text())["tensors"]
    with safe_open(path, framework="np") as f:
        need(sorted(f.keys()) == sorted(told), f"{path.name}: the lists of tensors differ")
        for key in told:
            t, x = f.get_tensor(key), told[key]
            x = {"shape": list(t.shape), "row": 0, "xxh3": x} if isinstance(x, str) else x  # version 1
            need(t.dtype == "float32" and xxhash.xxh3_64_hexdigest(t.tobytes()) == x["xxh3"], f"{key} is damaged")
            whole, seen = tensors.setdefault(key.split("@")[0], (numpy.empty(x["shape"], "f4"), numpy.zeros(x["shape"][0])))
            need(list(whole.shape) == x["shape"] and t.shape[1:] == whole.shape[1:], f"{key} is of two shapes")
            whole[x["row"] : x["row"] + len(t)] = t
            seen[x["row"] : x["row"] + len(t)] += 1


folder, tensors = pathlib.Path(sys.argv[1]), {}
manifest = read_manifest(folder)
for f in manifest["files"]:
    if f["name"].endswith(".safetensors"):
        read_file(folder / f["name"], tensors)
for name in sorted(tensors):
    whole, seen = tensors[name]
    need((seen == 1).all(), f"{name}: a row is missing, or there twice")
    print(f"{name} {list(whole.shape)} {xxhash.xxh3_64_hexdigest(whole.tobytes())}")
print(f"valid: step {manifest['step']}, {manifest['tokens']} tokens, written by {manifest['world']} rank(s)")
