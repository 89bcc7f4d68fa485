"""Variables that were filled from their neighbouring frames are named, and slow or rounded ones are not."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import pyro_sparse as ps
from pyro_sparse.data.checks.held_frames import held_variables
from pyro_sparse.data.sequences import as_sequences


def table(n=300, seed=0, memory=0.8):
    rng, x = np.random.default_rng(seed), np.zeros((n, 3))
    for t in range(1, n):
        x[t] = memory * x[t - 1] + rng.normal(size=3)
    return pd.DataFrame(x, columns=list("abc"))


def every(x, name, n):
    """One frame in n was measured."""
    return x[name].where(np.arange(len(x)) % n == 0)


@pytest.mark.parametrize(
    ("filled", "said", "share"),
    [
        (lambda x: x.assign(a=every(x, "a", 4).ffill()), "variable 'a' repeats the number", 0.75),
        (lambda x: x.assign(b=every(x, "b", 3).bfill().ffill()), "variable 'b' repeats the number", 2 / 3),
        (
            lambda x: x.assign(a=every(x, "a", 2).ffill(), b=every(x, "b", 2).ffill()),
            "'a' and 'b' repeat",
            0.5,
        ),
        (lambda x: x.assign(c=every(x, "c", 4).interpolate()), "variable 'c' lies on a line", 0.75),
        (lambda x: x.assign(c=1e6 + every(x, "c", 3).interpolate()), "variable 'c' lies on a line", 2 / 3),
    ],
)
def test_frames_filled_from_their_neighbours_are_named(filled, said, share):
    (finding,) = held_variables(as_sequences(filled(table())), [0, 1, 2])
    assert said in str(finding) and finding.is_doubt
    assert finding.size == pytest.approx(share, abs=0.02)
    assert f"{finding.size:.0%}" in finding.message
    assert not held_variables(as_sequences(filled(table())), []), "columns that nobody asked about"


@pytest.mark.parametrize(
    "kept",
    [
        lambda x: x,
        lambda x: x.round(1),
        lambda x: x.round(),  # half of the steps change nothing, and numbers come back
        lambda x: x.cumsum().round(2),
        np.sign,
        lambda x: np.floor(5 * x),
        lambda x: x.assign(a=every(x, "a", 2)),  # empty frames are no steps
        lambda x: x.assign(a=every(x, "a", 4).ffill())[:39],
        lambda x: x.assign(a=np.where(np.arange(len(x)) < 50, 1.5, x["a"])),  # silent at first
    ],
)
def test_what_moves_slowly_or_is_rounded_is_not(kept):
    for seed in range(5):
        assert not held_variables(as_sequences(kept(table(seed=seed, memory=0.95))), [0, 1, 2])


def test_no_step_leads_from_one_sequence_to_the_next():
    """Each sequence ends with the number that the next one begins with."""
    x = table(120).assign(id=np.repeat(np.arange(40), 3))
    x.loc[x.index[3::3], list("abc")] = x[list("abc")].to_numpy()[2:-1:3]
    assert not held_variables(as_sequences(x, id="id"), [0, 1, 2])


def test_edges_of_what_was_filled_are_open():
    x = table()
    x = x.assign(a=every(x, "a", 4).ffill())
    with pytest.warns(
        RuntimeWarning, match="X: variable 'a' repeats the number of the frame before in up to 75%"
    ):
        fit = ps.fit(ps.models.ObservedTransition(), x, progress=False)
    (finding,) = [finding for finding in fit.findings if "filled from their neighbours" in finding.message]
    edges = ps.summary(fit.edge_posterior()).set_index(["target", "source"])["verdict"]
    touched = [edge for edge in edges.index if "a" in edge]
    assert finding.factors == ("a",) and (edges[touched] == "open").all()
    assert edges["b", "b"] == edges["c", "c"] == "present"
