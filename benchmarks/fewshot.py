"""fewshot: does a group-lasso head classify new classes as well as a dense one, with half of the features?

Five-way, five-shot episodes of classes that training never saw, a small convolutional network of 256
features, the same episodes and initial weights for every head: the multiclass SVM with and without the group
penalty, and class prototypes for scale. Digits: scikit-learn's, five at random to train on, the other five to
test on. Glyphs: 100 procedural classes, 60 to train on. Asked for: accuracy within one point of the dense
SVM, at most half of the features in an episode, relative duality gaps of at most 1e-6. The penalties of both
SVMs were chosen on tuning seeds, each for itself.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

from benchmarks._common import Row, report_seeds

SEEDS, QUICK_SEEDS = 3, 1
# data: (sparsity and ridge of the sparse head, ridge of the dense one)
PENALTIES = {"digits": (0.3, 0.1, 0.1), "glyphs": (0.75, 0.3, 10.0)}
N_FEATURES, STEPS, N_TEST = 256, 100, 400
LOSS, SHARE, GAP = 0.01, 0.5, 1e-6


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--first-seed", type=int, default=0, help="begin at this seed (1000 and up: tuning)")


def tasks(options: argparse.Namespace) -> list[Row]:
    size = {"steps": 20, "n_test": 60} if options.quick else {"steps": STEPS, "n_test": N_TEST}
    seeds = [options.first_seed + seed for seed in report_seeds(options.seeds)]
    return [{"data": data, "seed": seed, **size} for seed in seeds for data in PENALTIES]


def run(data: str, seed: int, steps: int, n_test: int) -> Row:
    from pyro_sparse.inference.multitask.inner import GroupSVMHead, PrototypeHead

    sparsity, ridge, dense_ridge = PENALTIES[data]
    train, test = episodes(data, seed)
    start = time.process_time()
    sparse = trained(GroupSVMHead(sparsity, ridge), train, steps, seed)
    cpu = time.process_time() - start
    dense = trained(GroupSVMHead(0.0, dense_ridge), train, steps, seed)
    prototypes = trained(PrototypeHead(), train, steps, seed)
    return {
        **score(sparse.evaluate(test, n_test), dense.evaluate(test, n_test)),
        "accuracy_prototype": prototypes.evaluate(test, n_test).accuracy,
        "cpu_seconds": cpu,
    }


def episodes(data: str, seed: int) -> tuple[Any, Any]:
    """Training and test episodes, of different classes."""
    from sklearn.datasets import load_digits

    from pyro_sparse.datasets import Episodes, glyphs, split_classes

    if data == "digits":
        digits = load_digits()
        x, labels, n_train = digits.images[:, None] / 16, digits.target, 5
    else:
        drawn = glyphs(n_classes=100, n_per_class=20, size=16, seed=seed)
        x, labels, n_train = drawn.x, drawn.labels, 60
    rows = split_classes(labels, n_train, seed=seed)
    train, test = (
        Episodes(x[rows[part]], labels[rows[part]], n_way=5, n_shot=5, n_query=10, seed=seed)
        for part in ("train", "test")
    )
    return train, test


def network(seed: int) -> Any:
    import torch
    from torch import nn

    torch.manual_seed(seed)
    layers: list[nn.Module] = []
    for n_in, n_out in ((1, 32), (32, 64)):
        layers += [
            nn.Conv2d(n_in, n_out, 3, padding=1),
            nn.BatchNorm2d(n_out),
            nn.ReLU(),
            nn.MaxPool2d(2),
        ]
    return nn.Sequential(*layers, nn.Flatten(), nn.LazyLinear(N_FEATURES))


def trained(head: Any, train: Any, steps: int, seed: int) -> Any:
    import torch

    from pyro_sparse.inference.multitask.fewshot import FewShot

    net = network(seed)
    with torch.no_grad():
        net(torch.as_tensor(train.episode(0).support_x, dtype=torch.float32))  # sizes of the lazy layer
    return FewShot(net, head).fit(train, steps=steps, seed=seed, progress=False)


def score(sparse: Any, dense: Any) -> Row:
    """Figures of the two heads on the same test episodes; the interval is of the paired difference."""
    difference = sparse.by_episode - dense.by_episode
    return {
        "accuracy": sparse.accuracy,
        "accuracy_dense": dense.accuracy,
        "difference": float(difference.mean()),
        "difference_se": float(difference.std(ddof=1) / np.sqrt(len(difference))),
        "features_used": sparse.features_used,
        "features_ever": sparse.features_ever,
        "gap_max": max(sparse.gap_max, dense.gap_max),
    }


def collect(rows: list[Row], options: argparse.Namespace) -> Row:
    result: Row = {}
    for data in PENALTIES:
        own = [row for row in rows if row["data"] == data]
        means = ("accuracy", "accuracy_dense", "accuracy_prototype", "difference", "features_used")
        means += ("features_ever", "cpu_seconds")
        result[data] = {name: float(np.mean([row[name] for row in own])) for name in means}
        result[data]["gap_max"] = max(row["gap_max"] for row in own)
        result[data]["reached"] = sum(reached(row) for row in own)
        result[data]["n"] = len(own)
    return result


def reached(row: Row) -> bool:
    """Whether one run has what is asked for."""
    close = row["accuracy"] >= row["accuracy_dense"] - LOSS
    return bool(close and row["features_used"] <= SHARE and row["gap_max"] <= GAP)
