"""SOAP in float64 as published (arXiv 2409.11321, algorithms 3 and 4), on given gradients: tests/golden/soap.safetensors.

The first step only makes the preconditioners and their eigenvectors, as in the authors' program. Gradients have full rank on
both sides that are turned, or bases would not be determined by them.

    python tests/oracle/soap.py [FOLDER]
"""

import sys
from pathlib import Path

import numpy as np

from generate import random_matrix, write_safetensors

BETA1, BETA2, EPS, LR, DECAY, FREQUENCY, STEPS = 0.95, 0.9, 1e-8, 0.01, 0.1, 2, 6


class Side:
    def __init__(self, n):
        self.mean, self.basis = np.zeros((n, n)), None

    def update(self, product, step):
        self.mean = BETA2 * self.mean + (1 - BETA2) * product
        if step == 0:
            self.basis = np.linalg.eigh(self.mean)[1][:, ::-1]  # large eigenvalues first
        elif step % FREQUENCY == 0:
            self.basis = np.linalg.qr(self.mean @ self.basis)[0]


def soap(w, grads, left, right):
    """w after each step. left, right: whether a side has a basis."""
    rows, cols = w.shape
    sides = [Side(rows) if left else None, Side(cols) if right else None]
    m, v, out = np.zeros_like(w), np.zeros_like(w), []

    def turn(x, back):
        q = [s.basis if s else np.eye(n) for s, n in zip(sides, w.shape)]
        return q[0] @ x @ q[1].T if back else q[0].T @ x @ q[1]

    for step, g in enumerate(grads):
        if step:
            m = BETA1 * m + (1 - BETA1) * g
            v = BETA2 * v + (1 - BETA2) * turn(g, False) ** 2
            n = turn(m, False) / (1 - BETA1**step) / (np.sqrt(v / (1 - BETA2**step)) + EPS)
            w = w * (1 - LR * DECAY) - LR * turn(n, True)
        if sides[0]:
            sides[0].update(g @ g.T, step)
        if sides[1]:
            sides[1].update(g.T @ g, step)
        out.append(w)
    return out


def main():
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent / "golden")
    tensors = {}
    for name, rows, cols, left, right in (("both", 24, 24, True, True), ("left", 16, 24, True, False),
                                          ("right", 24, 16, False, True)):
        w = random_matrix(f"soap/{name}/w", rows, cols).numpy().astype(np.float32)
        grads = [random_matrix(f"soap/{name}/{s}", rows, cols).numpy().astype(np.float32) for s in range(STEPS)]
        tensors[f"{name}/w"] = w
        for s, (g, after) in enumerate(zip(grads, soap(w.astype(float), [g.astype(float) for g in grads], left, right))):
            tensors[f"{name}/grad{s}"], tensors[f"{name}/after{s}"] = g, after.astype(np.float32)
    write_safetensors(folder / "soap.safetensors", tensors,
                      {"beta1": BETA1, "beta2": BETA2, "eps": EPS, "lr": LR, "decay": DECAY,
                       "frequency": FREQUENCY, "steps": STEPS})


if __name__ == "__main__":
    main()
