"""Token files and blends by megatron-core itself: tests/golden/megatron and tests/golden/megatron.safetensors.

    python tests/oracle/megatron_files.py golden [FOLDER]     writes them
    python tests/oracle/megatron_files.py read PREFIX         what its reader finds in PREFIX.idx and .bin, for files of ours

Needs numpy, torch and `pip install --no-deps megatron-core==0.16.1`. Files come from its IndexedDatasetBuilder, in every way of
calling it; their content, as its IndexedDataset reads it back; samples from its GPTDataset with the shuffles of documents and
samples taken out (those are numpy's generator, and no promise of ours); blends from its BlendedMegatronDatasetBuilder.
"""

import os
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from megatron.core import parallel_state
from megatron.core.datasets import gpt_dataset
from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
from megatron.core.datasets.indexed_dataset import DType, IndexedDataset, IndexedDatasetBuilder

SEQ_LEN = 16
# Samples to draw, and weights as users write them. Sums that depend on their order, and exact ties, are among them.
BLENDS = {
    "two": (600, [0.7, 0.3]),
    "three": (600, [50, 30, 20]),
    "small": (600, [1, 1e-3, 0.3]),
    "equal": (600, [0.1] * 11),
    "thirds": (600, [1 / 3, 1 / 7, 1 / 3, 0.1, 0.2, 0.3, 1 / 9, 0.7, 0.1, 0.2, 1 / 3, 0.4, 0.6]),
    "many": (900, [round(0.05 + 0.9 * (i * 37 % 101) / 101, 2) for i in range(150)]),
}
# Files without weights, by the samples that they have. Weights brought to sum 1 once more would give others an order of their own.
COUNTS = {"files": [3, 7, 40, 11], "files_many": [1 + i * 29 % 53 for i in range(30)]}


def tokens(n, below, seed):
    return np.random.RandomState(seed).randint(0, below, n)


def build(folder, name, vocab, fill, **options):
    kind = options.pop("dtype", None) or DType.optimal_dtype(vocab)
    builder = IndexedDatasetBuilder(str(folder / f"{name}.bin"), dtype=kind, **options)
    fill(builder)
    builder.finalize(str(folder / f"{name}.idx"))


def write_files(folder):
    def items(vocab):
        def fill(b):
            for d, sequences in enumerate(([5, 1, 9], [], [30], [4, 4])):
                for s, n in enumerate(sequences):
                    b.add_item(torch.from_numpy(tokens(n, vocab, 10 * d + s)))
                b.end_document()
        return fill

    def documents(b):
        for d, lengths in enumerate(([7], [2, 0, 3], [24], [1, 1, 1, 1])):
            b.add_document(torch.from_numpy(tokens(sum(lengths), 60000, 100 + d)), lengths)

    def modes(b):
        b.add_item(torch.arange(5), 0), b.add_item(torch.arange(3), 1), b.end_document()
        b.add_item(torch.arange(12), 1), b.end_document()

    def merged(b):
        b.add_index(str(folder / "documents")), b.add_index(str(folder / "items"))

    build(folder, "items", 65499, items(65499))
    build(folder, "wide", 151936, items(151936))
    build(folder, "bytes", 256, items(256), dtype=np.uint8)
    build(folder, "long", 30000, items(30000), dtype=np.int64)
    build(folder, "documents", 60000, documents)
    build(folder, "modes", 1000, modes, multimodal=True)
    build(folder, "merged", 65499, merged)


def content(prefix, multimodal=False):
    """Tokens, lengths of sequences, token positions at which documents begin and the last ends."""
    d = IndexedDataset(prefix, multimodal=multimodal)
    read = [d[i][0] if multimodal else d[i] for i in range(len(d))]
    lengths = np.array([len(x) for x in read], np.int32)
    starts = np.concatenate([[0], np.cumsum(lengths)])[np.asarray(d.document_indices)]
    return np.concatenate(read).astype(np.int32), lengths, starts.astype(np.int32)


class Tokenizer:
    eod, pad, vocab_size, unique_identifiers = 0, 0, 65499, {"class": "none"}


def config(folder, **options):
    # token 0 ends documents only for masks, which are off
    return gpt_dataset.GPTDatasetConfig(random_seed=1, sequence_length=SEQ_LEN, reset_position_ids=False, tokenizer=Tokenizer(),
                                        reset_attention_mask=False, eod_mask_loss=False, split="1,0,0",
                                        path_to_cache=tempfile.mkdtemp(dir=folder), **options)


def build_datasets(folder, sizes, blend):
    build = BlendedMegatronDatasetBuilder(gpt_dataset.GPTDataset, sizes, lambda: True, config(folder, blend=blend)).build
    return build()[0]


def samples(prefix, work):
    """Inputs and labels of an epoch, in the order of the file."""
    taken_out = gpt_dataset._build_document_index, gpt_dataset._build_shuffle_index
    gpt_dataset._build_document_index = lambda documents, epochs, state, separate: np.array(documents, np.int32)
    gpt_dataset._build_shuffle_index = lambda n, total, state: np.arange(total, dtype=np.uint32)
    try:
        d = build_datasets(work, [None, None, None], ([prefix], None))
        read = [d[i] for i in range(len(d))]
    finally:
        gpt_dataset._build_document_index, gpt_dataset._build_shuffle_index = taken_out
    return tuple(np.stack([x[key].numpy() for x in read]).astype(np.int32) for key in ("tokens", "labels"))


def blend(work, n, weights, sizes):
    prefixes = []
    for i, size in enumerate(sizes):
        build(work, f"part{i}", 1000, lambda b: (b.add_item(torch.arange(size * SEQ_LEN + 1)), b.end_document()))
        prefixes.append(str(work / f"part{i}"))
    d = build_datasets(work, [n, 0, 0] if weights else [None, None, None], (prefixes, weights))
    return np.stack([d.dataset_index, d.dataset_sample_index]).astype(np.int32)


def golden(folder):
    from generate import write_safetensors

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29733", RANK="0", WORLD_SIZE="1")
    torch.distributed.init_process_group("gloo")
    parallel_state.initialize_model_parallel()
    out, files = {}, folder / "megatron"
    shutil.rmtree(files, ignore_errors=True)
    files.mkdir()
    write_files(files)
    with tempfile.TemporaryDirectory() as work:
        work = Path(work)
        for path in sorted(files.glob("*.idx")):
            name, prefix = path.stem, str(path.with_suffix(""))
            out[f"{name}/tokens"], out[f"{name}/lengths"], out[f"{name}/starts"] = content(prefix, name == "modes")
            if name not in ("modes", "long"):
                out[f"{name}/inputs"], out[f"{name}/labels"] = samples(prefix, work)
        for name, (n, weights) in BLENDS.items():
            out[f"blend/{name}"] = blend(work, n, weights, [32] * len(weights))
        for name, sizes in COUNTS.items():
            out[f"blend/{name}"] = blend(work, 0, None, sizes)
    meta = {name: " ".join(map(repr, weights)) for name, (_, weights) in BLENDS.items()}
    meta |= {name: " ".join(map(str, sizes)) for name, sizes in COUNTS.items()}
    write_safetensors(folder / "megatron.safetensors", out, meta | {"seq_len": SEQ_LEN})
    torch.distributed.destroy_process_group()


def main():
    if sys.argv[1] == "golden":
        golden(Path(sys.argv[2] if len(sys.argv) > 2 else Path(__file__).parent.parent / "golden"))
    else:
        for x in content(sys.argv[2]):
            print(*x)


if __name__ == "__main__":
    main()
