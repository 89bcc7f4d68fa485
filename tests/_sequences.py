"""Four sequences of five frames, with actions in numbers and in labels, and the table that holds them."""

from __future__ import annotations

import numpy as np
import pandas as pd

RNG = np.random.default_rng(0)
X = RNG.normal(size=(4, 5, 3)) * [1, 10, 100] + [0, 5, -7]
A = RNG.uniform(-2, 2, size=(4, 5, 2))
LABELS = np.array([list("uvwuv"), list("wwuvu"), list("uuuuv"), list("vvwuw")])
NAN = np.nan


def long(x=X, actions=None, labels=None, times=None):
    """One row per frame, shuffled."""
    rows = []
    for s in range(len(x)):
        for t in range(len(x[s])):
            row = {"id": f"s{s}", "t": t if times is None else times[s][t]}
            row |= {f"x{j + 1}": v for j, v in enumerate(x[s][t])}
            row |= {} if actions is None else {f"a{j + 1}": v for j, v in enumerate(actions[s][t])}
            row |= {} if labels is None else {"label": labels[s][t]}
            rows.append(row)
    table = pd.DataFrame(rows)
    mixed = table.iloc[RNG.permutation(len(table))]
    return pd.concat(
        [table.groupby("id").head(1), mixed[~mixed.index.isin(table.groupby("id").head(1).index)]]
    )
