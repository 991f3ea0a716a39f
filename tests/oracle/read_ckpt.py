#!/usr/bin/env python3
"""Verifies and lists a checkpoint with nothing of moetitan: only docs/checkpoints.md, safetensors and xxhash.

usage: read_ckpt.py RUN/ckpt/step-00000500
"""
import json
import pathlib
import sys

import xxhash
from safetensors import safe_open


def need(ok, what):
    if not ok:
        sys.exit(f"not valid: {what}")


def read_manifest(path):
    raw = path.read_bytes()
    manifest = json.loads(raw)
    need(manifest["format"] == "moetitan checkpoint" and manifest["version"] == 1, path)
    need(raw[-19:] == manifest["xxh3"].encode() + b'"}\n', f"{path}: its own checksum is not at its end")
    need(xxhash.xxh3_64_hexdigest(raw[:-19]) == manifest["xxh3"], f"{path} is damaged")
    return manifest


def check_files(folder, manifest):
    for f in manifest["files"]:
        raw = (folder / f["name"]).read_bytes()
        need(len(raw) == f["bytes"] and xxhash.xxh3_64_hexdigest(raw) == f["xxh3"], f"{f['name']} is damaged")


def list_rank(folder, rank):
    sums = json.loads((folder / f"rank-{rank:05d}.json").read_text())["tensors"]
    with safe_open(folder / f"rank-{rank:05d}.safetensors", framework="np") as tensors:
        need(sorted(tensors.keys()) == sorted(sums), f"rank {rank}: the lists of tensors differ")
        for name in sums:
            t = tensors.get_tensor(name)
            need(t.dtype == "float32" and xxhash.xxh3_64_hexdigest(t.tobytes()) == sums[name], f"{name} is damaged")
            print(f"{name} {list(t.shape)} {sums[name]}")


def main():
    folder = pathlib.Path(sys.argv[1])
    manifest = read_manifest(folder / "manifest.json")
    check_files(folder, manifest)
    for rank in range(manifest["world"]):
        list_rank(folder, rank)
    print(f"valid: step {manifest['step']}, {manifest['tokens']} tokens, {manifest['world']} rank(s)")


main()
