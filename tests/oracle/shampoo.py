"""Shampoo in float64 as published (arXiv 2309.06497, algorithm 2, grafted with Adam), on given gradients: tests/golden/shampoo.safetensors.

    python tests/oracle/shampoo.py [FOLDER]
"""

import sys
from pathlib import Path

import numpy as np

from generate import random_matrix, write_safetensors

BETA1, BETA2, EPS, GRAFT_EPS, LR, DECAY, FREQUENCY, START, STEPS = 0.9, 0.8, 1e-4, 1e-8, 0.01, 0.1, 2, 3, 6


class Side:
    def __init__(self, n):
        self.mean, self.root = np.zeros((n, n)), None

    def update(self, product, step, power):
        self.mean = BETA2 * self.mean + (1 - BETA2) * product
        if step == START or (step > START and step % FREQUENCY == 0):
            values, vectors = np.linalg.eigh(self.mean / (1 - BETA2**step))
            self.root = vectors @ np.diag((np.maximum(values, 0) + EPS) ** power) @ vectors.T


def shampoo(w, grads, left, right):
    """w after each step. left, right: whether a side is preconditioned."""
    rows, cols = w.shape
    sides, power = [Side(rows) if left else None, Side(cols) if right else None], -1 / (2 * (left + right))
    m, v, out = np.zeros_like(w), np.zeros_like(w), []
    for step, g in enumerate(grads, 1):
        m = BETA1 * m + (1 - BETA1) * g
        v = BETA2 * v + (1 - BETA2) * g**2
        for s, product in zip(sides, (g @ g.T, g.T @ g)):
            if s:
                s.update(product, step, power)
        mean = m / (1 - BETA1**step)
        adam = mean / (np.sqrt(v / (1 - BETA2**step)) + GRAFT_EPS)
        update = adam
        if step >= START:
            update = (sides[0].root if left else np.eye(rows)) @ mean @ (sides[1].root if right else np.eye(cols))
            update *= np.linalg.norm(adam) / np.linalg.norm(update)
        w = w * (1 - LR * DECAY) - LR * update
        out.append(w)
    return out


def main():
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent / "golden")
    tensors = {}
    for name, rows, cols, left, right in (("both", 24, 24, True, True), ("left", 16, 24, True, False),
                                          ("right", 24, 16, False, True)):
        w = random_matrix(f"shampoo/{name}/w", rows, cols).numpy().astype(np.float32)
        grads = [random_matrix(f"shampoo/{name}/{s}", rows, cols).numpy().astype(np.float32) for s in range(STEPS)]
        tensors[f"{name}/w"] = w
        after = shampoo(w.astype(float), [g.astype(float) for g in grads], left, right)
        for s, (g, x) in enumerate(zip(grads, after)):
            tensors[f"{name}/grad{s}"], tensors[f"{name}/after{s}"] = g, x.astype(np.float32)
    write_safetensors(folder / "shampoo.safetensors", tensors,
                      {"beta1": BETA1, "beta2": BETA2, "eps": EPS, "graft_eps": GRAFT_EPS, "lr": LR, "decay": DECAY,
                       "frequency": FREQUENCY, "start": START, "steps": STEPS})


if __name__ == "__main__":
    main()
