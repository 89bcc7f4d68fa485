"""Tables that would mislead a fit, by kind and seed, and how many of them pass in silence.

Each kind of table (copied columns, totals, repeated rows, batches, …) has a generator, whose seed also
chooses the variant. A table is *told* if `ps.check_table` says one of the expected words, else *right* if
the fit's edges above are all true, else *silent*. `clean` is the share of ordinary tables that are told
anything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from scipy.optimize import linear_sum_assignment

import pyro_sparse as ps


class Case(NamedTuple):
    """One table.

    Parameters
    ----------
    x : DataFrame
    truth : ndarray (feature, factor) or None
        Nonzero where there is an edge; None where no graph is right.
    likelihood : str
    settings : dict
        For `ps.fit`.
    words : tuple of str
        One of which a finding has to say.
    names : tuple of str
        All of which some finding has to name, as columns or in its message.
    """

    x: pd.DataFrame
    truth: np.ndarray | None
    likelihood: str
    settings: dict[str, Any]
    words: tuple[str, ...]
    names: tuple[str, ...] = ()


# ---- ordinary tables ---------------------------------------------------------------------------------------
def factors(rng: np.random.Generator, n: int, k: int, rho: float = 0.0) -> np.ndarray:
    """Scores (row, factor) of unit variance, correlated by rho."""
    common = rng.normal(size=(n, 1))
    return np.sqrt(rho) * common + np.sqrt(1 - rho) * rng.normal(size=(n, k))


def loadings(rng: np.random.Generator, p: int, k: int, cross: float = 0.0) -> np.ndarray:
    """One main loading of .7 to 1.2 for each item, others with probability `cross`."""
    w = np.zeros((p, k))
    w[np.arange(p), np.arange(p) % k] = rng.uniform(0.7, 1.2, p) * rng.choice([-1, 1], p)
    extra = (rng.random((p, k)) < cross) & (w == 0)
    return np.where(extra, rng.uniform(0.3, 0.8, (p, k)) * rng.choice([-1, 1], (p, k)), w)


def framed(x: np.ndarray) -> pd.DataFrame:
    """A table with columns x0, x1, …"""
    return pd.DataFrame(x, columns=[f"x{j}" for j in range(x.shape[1])])


def linear(
    rng: np.random.Generator, n: int | None = None, k: int | None = None
) -> tuple[pd.DataFrame, np.ndarray]:
    """Simple structure: 250 to 500 rows, three or four items for each of two to four factors."""
    n = int(rng.integers(250, 501)) if n is None else n
    k = int(rng.integers(2, 5)) if k is None else k
    w = loadings(rng, k * int(rng.integers(3, 5)), k)
    return framed(factors(rng, n, k) @ w.T + rng.uniform(0.6, 0.8) * rng.normal(size=(n, len(w)))), w


def clean_table(seed: int) -> tuple[pd.DataFrame, str]:
    """An ordinary table and its likelihood: linear, curved, sparse, counts, yes or no, with holes or none."""
    rng = np.random.default_rng([seed, 77])
    n = int(np.exp(rng.uniform(np.log(60), np.log(2000))))
    p = int(np.exp(rng.uniform(np.log(5), np.log(60))))
    k = int(rng.integers(1, max(2, min(8, p // 3) + 1)))
    kind = seed % 8
    z = factors(rng, n, k, rng.choice([0.0, 0.0, 0.3, 0.5]))
    w = loadings(rng, p, k, rng.choice([0.0, 0.1, 0.3]))
    f = z @ w.T
    likelihood = "normal"
    if kind in (0, 1):
        x = f + rng.uniform(0.2, 1.0) * rng.normal(size=(n, p))
    elif kind == 2:  # sparse: some items load on nothing
        x = f * (rng.random(p) < 0.7) + rng.uniform(0.3, 1.2, p) * rng.normal(size=(n, p))
    elif kind == 3:  # curves of one factor, or of a sum of some
        x = np.column_stack([CURVES[rng.integers(len(CURVES))](f[:, j] / f[:, j].std()) for j in range(p)])
        x = (x - x.mean(0)) / x.std(0) + rng.uniform(0.15, 0.9, p) * rng.normal(size=(n, p))
    elif kind == 4:  # a network of one hidden layer
        hidden = np.tanh(z @ rng.normal(size=(k, 12)))
        mask = (w != 0).any(1)
        x = (
            f
            + (hidden @ rng.normal(size=(12, p)) / 4) * mask
            + rng.uniform(0.3, 0.8) * rng.normal(size=(n, p))
        )
    elif kind == 5:
        likelihood = str(rng.choice(["poisson", "negative_binomial", "multinomial"]))
        rate = np.exp(rng.uniform(0.3, 2.5, p) + 0.6 * f)
        if rng.random() < 0.5:
            rate *= rng.lognormal(0, 0.5, size=(n, 1))
        if likelihood == "negative_binomial":
            rate *= rng.gamma(2.0, 0.5, size=(n, p))
        if likelihood == "multinomial":
            x = np.stack(
                [
                    rng.multinomial(int(t), r / r.sum())
                    for t, r in zip(rng.integers(20, 400, n), rate, strict=True)
                ]
            )
        else:
            x = rng.poisson(rate)
        x = x[:, x.std(0) > 0].astype(float)
    elif kind == 6:
        likelihood = "bernoulli"
        x = (rng.random((n, p)) < 1 / (1 + np.exp(-1.5 * f - rng.normal(size=p)))).astype(float)
        x = x[:, x.std(0) > 0]
    else:  # correlated factors and small cross-loadings, in some unit
        x = f + 0.1 * z @ rng.normal(size=(k, p)) + rng.uniform(0.4, 1.0, p) * rng.normal(size=(n, p))
        x = 10 ** rng.uniform(-3, 3, p) * x + rng.uniform(-5, 5, p)
    x = framed(x)
    if rng.random() < 0.4:
        x = x.mask(rng.random(x.shape) < rng.uniform(0.01, 0.3))
        x = x[x.notna().any(axis=1)].reset_index(drop=True)
    return x, likelihood


CURVES: list[Callable[[np.ndarray], np.ndarray]] = [
    lambda u: u, lambda u: np.tanh(2 * u), np.square, lambda u: np.exp(0.8 * u),
    lambda u: np.sin(1.5 * u), lambda u: (u > 0).astype(float), np.abs,
]  # fmt: skip


# ---- tables that mislead -----------------------------------------------------------------------------------
def near_copy(seed: int) -> Case:
    """A column and the same with a little noise: r from .98 to .999, one to three copies, some negative."""
    rng = np.random.default_rng([seed, 1])
    x, w = linear(rng)
    named = []
    for j in rng.choice(len(w), rng.integers(1, 3), replace=False):
        r = rng.uniform(0.98, 0.999)
        noise = x[f"x{j}"].std() * np.sqrt(1 / r**2 - 1)
        x[f"x{j}b"] = (
            rng.choice([-1, 1]) * (x[f"x{j}"] + noise * rng.normal(size=len(x))) * rng.uniform(0.1, 10)
        )
        named += [f"x{j}", f"x{j}b"]
    return Case(x, w, "normal", {}, ("copy", "repeats"), tuple(named))


def dependent(seed: int) -> Case:
    """Exactly dependent columns: a difference, a total, a mean of three; sometimes with missing cells."""
    rng = np.random.default_rng([seed, 2])
    x, w = linear(rng)
    members = [f"x{j}" for j in rng.choice(len(w), rng.choice([2, 2, 3, 4]), replace=False)]
    signs = [1, -1] if len(members) == 2 and rng.random() < 0.6 else rng.choice([1, 1, 0.5], len(members))
    x["made"] = x[members] @ np.asarray(signs, float)
    if rng.random() < 0.3:
        x = x.mask(rng.random(x.shape) < 0.05)
    return Case(x, w, "normal", {}, ("linearly dependent",), (*members, "made"))


def one_hot(seed: int) -> Case:
    """A category as three to five columns of 0 and 1, beside measurements or alone."""
    rng = np.random.default_rng([seed, 3])
    x, w = linear(rng)
    category = rng.choice(int(rng.integers(3, 6)), len(x))
    dummies = pd.get_dummies(pd.Series(category).map(lambda c: f"cat{c}")).astype(float)
    if rng.random() < 0.3:
        yes = (x > x.median()).astype(float)
        return Case(yes.join(dummies), w, "bernoulli", {}, ("one-hot",), tuple(dummies.columns))
    return Case(x.join(dummies), w, "normal", {}, ("one-hot",), tuple(dummies.columns))


def shares(seed: int) -> Case:
    """Rows that add to one or a hundred, some rounded; all columns or a block of them."""
    rng = np.random.default_rng([seed, 4])
    n, p = int(rng.integers(200, 500)), int(rng.integers(4, 13))
    z = rng.normal(size=(n, 2))
    x = np.exp(0.7 * z @ loadings(rng, p, 2).T + 0.4 * rng.normal(size=(n, p)))
    x = x / x.sum(1, keepdims=True)
    variant = seed % 4
    if variant == 1:
        x = np.round(100 * x, 1)
    elif variant == 2:
        x = np.round(100 * x, 2)
    x = framed(x)
    if variant == 3:
        other, _ = linear(rng, n)
        x = x.join(other.add_prefix("other"))
    return Case(x, None, "normal", {}, ("add to",), tuple(f"x{j}" for j in range(p)))


def duplicates(seed: int) -> Case:
    """Three to twenty rows that are there twice, one row many times, or all rows twice."""
    rng = np.random.default_rng([seed, 5])
    x, w = linear(rng)
    variant = seed % 3
    again = rng.choice(len(x), int(rng.integers(3, 21)), replace=False)
    if variant == 1:
        again = np.repeat(again[:1], len(again))
    more = x if variant == 2 else x.iloc[again]
    x = pd.concat([x, more], ignore_index=True)
    if rng.random() < 0.5:
        x = x.sample(frac=1, random_state=seed).reset_index(drop=True)
    return Case(x, w, "normal", {}, ("repeat",))


def careless(seed: int) -> Case:
    """One to five per cent of the rows multiplied by 5 to 20, or by 100 where all has a mean (cm for m)."""
    rng = np.random.default_rng([seed, 6])
    x, w = linear(rng)
    which = rng.choice(len(x), max(2, int(rng.uniform(0.01, 0.05) * len(x))), replace=False)
    if seed % 3 == 2:
        x = x + 8
        x.iloc[which] *= rng.choice([0.01, 100])
    else:
        x.iloc[which] *= rng.uniform(5, 20)
    return Case(x, w, "normal", {}, ("as far from the middle",))


def cell(seed: int) -> Case:
    """One cell that makes its column, or a few cells of one column in another unit."""
    rng = np.random.default_rng([seed, 7])
    x, w = linear(rng)
    j = f"x{rng.integers(len(w))}"
    if seed % 2:
        x.loc[rng.integers(len(x)), j] = rng.choice([-1, 1]) * rng.uniform(30, 1000)
    else:
        x[j] = x[j] + 10
        x.loc[rng.choice(len(x), int(rng.uniform(0.01, 0.04) * len(x)), replace=False), j] *= 100
    return Case(x, w, "normal", {}, ("far from all others",), (j,))


def blocks(seed: int) -> Case:
    """Two to four groups of columns, no two of them in the same row; sometimes beside columns always seen."""
    rng = np.random.default_rng([seed, 8])
    x, w = linear(rng, k=3)
    n_blocks = int(rng.integers(2, 5))
    columns = rng.permutation(x.shape[1])
    common = columns[: 2 * int(rng.random() < 0.4)]
    block_of = np.arange(x.shape[1]) % n_blocks
    row = rng.integers(n_blocks, size=len(x))
    hidden = row[:, None] != block_of[None, :]
    hidden[:, common] = False
    x = x.mask(hidden)
    return Case(x[x.notna().any(axis=1)], w, "normal", {}, ("never seen in the same row",))


def likert(seed: int) -> Case:
    """One trait, three to seven levels, half of the items easy and half hard."""
    rng = np.random.default_rng([seed, 9])
    levels, n, p = int(rng.integers(3, 8)), int(rng.integers(300, 700)), 12
    b = rng.uniform(0.6, 0.8)
    y = b * rng.normal(size=(n, 1)) + np.sqrt(1 - b**2) * rng.normal(size=(n, p))
    skew = rng.uniform(1.0, 1.6) * np.where(np.arange(p) % 2, 1, -1)
    cuts = np.linspace(-1.2, 1.2, levels - 1)
    x = np.stack([np.digitize(y[:, j], cuts + skew[j]) + 1 for j in range(p)], 1)
    return Case(framed(x.astype(float)), np.ones((p, 1)), "normal", {"n_factors": 3}, ("ordinal",))


def mixed(seed: int) -> Case:
    """Numbers, yes or no, counts and grades under one normal likelihood; some kinds may be absent."""
    rng = np.random.default_rng([seed, 10])
    n, z = 500, rng.normal(size=(500, 2))
    kinds = [
        ["num", "yes", "cnt", "grade"],
        ["num", "yes"],
        ["num", "cnt"],
        ["num", "grade"],
        ["yes", "cnt"],
    ][seed % 5]
    columns, truth = {}, []
    for kind in kinds:
        for i in range(4):
            f = rng.uniform(0.8, 1.4) * rng.choice([-1, 1]) * z[:, i % 2]
            truth.append(np.eye(2)[i % 2])
            if kind == "num":
                columns[f"num{i}"] = 10 + 3 * f + 2 * rng.normal(size=n)
            elif kind == "yes":
                columns[f"yes{i}"] = (rng.random(n) < 1 / (1 + np.exp(-1.5 * f))).astype(float)
            elif kind == "cnt":
                columns[f"cnt{i}"] = rng.poisson(np.exp(0.8 + 0.6 * f)).astype(float)
            else:
                columns[f"grade{i}"] = np.digitize(1.3 * f + rng.logistic(size=n), [-2, -0.7, 0.7, 2]) + 1.0
    x = pd.DataFrame(columns)
    return Case(x.mask(rng.random(x.shape) < 0.05), np.array(truth), "normal", {}, ("several kinds",))


def batches(seed: int) -> Case:
    """Two to five batches whose means differ (sd .5 to 1.5): in turn, one after the other, or mixed."""
    rng = np.random.default_rng([seed, 11])
    n, w = int(rng.integers(300, 600)), loadings(rng, 12, 2)
    x = factors(rng, n, 2) @ w.T + 0.7 * rng.normal(size=(n, 12))
    n_batches, sd = int(rng.integers(2, 6)), rng.uniform(0.5, 1.5)
    variant = seed % 4
    batch = np.arange(n) % n_batches
    if variant == 1:
        batch = np.sort(batch)
    elif variant > 1:
        batch = rng.permutation(batch)
    x = framed(x + (sd * rng.normal(size=(n_batches, 12)))[batch])
    if variant == 2:
        x.index = pd.Index([f"site{'ABCDE'[b]}_{i}" for i, b in enumerate(batch)])
    return Case(x, w, "normal", {}, ("batch",))


def overdispersed(seed: int) -> Case:
    """Independent gamma counts times a row's depth, or with factors, under Poisson or multinomial."""
    rng = np.random.default_rng([seed, 12])
    n, p = int(rng.integers(200, 500)), int(rng.integers(8, 15))
    shape, depth = rng.uniform(0.5, 2.0), rng.lognormal(0, rng.uniform(0.2, 0.6), size=(n, 1))
    rate = rng.gamma(shape, rng.uniform(4, 10) / shape, size=(n, p)) * depth
    truth = np.zeros((p, 0))
    if seed % 3 == 2:
        truth = loadings(rng, p, 2)
        rate *= np.exp(0.4 * factors(rng, n, 2) @ truth.T)
    likelihood = ["poisson", "multinomial"][seed % 2]
    return Case(framed(rng.poisson(rate).astype(float)), truth, likelihood, {}, ("overdispersed",))


def tails(seed: int) -> Case:
    """Noise of Student's t with two to four degrees of freedom."""
    rng = np.random.default_rng([seed, 13])
    n, k = int(rng.integers(250, 501)), 3
    w = loadings(rng, 12, k)
    x = factors(rng, n, k) @ w.T + rng.uniform(0.5, 0.8) * rng.standard_t(rng.uniform(2, 4), size=(n, 12))
    return Case(framed(x), w, "normal", {}, ("than normal noise", "far from all others"))


def coded_levels(seed: int) -> Case:
    """The items of `likert` in another code: per cent, tenths, z-scores, from -2."""
    case = likert(seed)
    x = case.x
    codes = (25 * (x - 1), x / 10, (x - x.mean()) / x.std(), x - 3.0)
    return case._replace(x=codes[seed % 4])


def codes(seed: int) -> Case:
    """A code for missing cells among levels, counts, or measurements."""
    rng = np.random.default_rng([seed, 14])
    x, w = linear(rng)
    likelihood = ["normal", "ordinal", "poisson", "negative_binomial"][seed % 4]
    code = 9.0 if seed % 4 < 2 else float(rng.choice([99, 999]))
    made = np.digitize(x, [-1, -0.3, 0.3, 1]) + 1.0 if seed % 4 < 2 else rng.poisson(np.exp(1 + 0.3 * x))
    x = pd.DataFrame(made, columns=x.columns).astype(float)
    x = x.mask(rng.random(x.shape) < rng.uniform(0.02, 0.06), code)
    return Case(x, w, likelihood, {}, ("stands for missing",), tuple(x.columns))


def filled(seed: int) -> Case:
    """Missing cells filled with means or 0, or measurements with a ceiling or a floor."""
    rng = np.random.default_rng([seed, 15])
    x, w = linear(rng)
    variant = seed % 4
    if variant < 2:
        x = (x + 10).mask(rng.random(x.shape) < rng.uniform(0.06, 0.3))
        x = x.fillna(x.mean() if variant else 0.0)
    else:
        at = rng.uniform(0.08, 0.4)
        x = x.clip(upper=x.quantile(1 - at), axis=1) if variant == 2 else x.clip(lower=x.quantile(at), axis=1)
    return Case(x, w, "normal", {}, ("as often as any other",), tuple(x.columns))


def no_counts(seed: int) -> Case:
    """Answers or levels under a likelihood of counts."""
    rng = np.random.default_rng([seed, 16])
    x, w = linear(rng)
    made = (x > 0).astype(float) if seed % 2 else x.apply(lambda c: np.digitize(c, [-1, 0, 1]) + 1.0)
    return Case(made, w, ["poisson", "negative_binomial"][seed // 2 % 2], {}, ("vary less than counts",))


def linked_blocks(seed: int) -> Case:
    """Two groups of columns that one to eight rows link."""
    rng = np.random.default_rng([seed, 17])
    x, w = linear(rng, k=3)
    hidden = (np.arange(len(x)) % 2)[:, None] == (np.arange(x.shape[1]) >= x.shape[1] // 2)[None]
    hidden[: int(rng.integers(1, 9))] = False
    return Case(x.mask(hidden), w, "normal", {}, ("seen together in",))


def curved_copy(seed: int) -> Case:
    """A column beside a curve of it, or beside itself with some cells of another."""
    rng = np.random.default_rng([seed, 18])
    x, w = linear(rng)
    j = f"x{rng.integers(len(w))}"
    z = x[j] / x[j].std()
    if seed % 2:
        x["made"] = np.exp(rng.uniform(0.5, 1.5) * z)
    else:
        x["made"] = x[j].where(rng.random(len(x)) < rng.uniform(0.2, 0.95), rng.normal(size=len(x)))
    return Case(x, w, "normal", {}, ("copy", "one order", "same number", "repeats"), (j, "made"))


def named_groups(seed: int) -> Case:
    """Shuffled persons with some rows each, or many batches, told by a part of rows' names only."""
    rng = np.random.default_rng([seed, 19])
    x, w = linear(rng)
    n_groups = int(rng.integers(6, 80))
    group = rng.permutation(np.arange(len(x)) % n_groups)
    x = x + rng.uniform(0.6, 1.2) * rng.normal(size=(n_groups, x.shape[1]))[group]
    x.index = [(f"p{g}", f"s-{g}-{i}", f"{i}.g{g}")[seed % 3] for i, g in enumerate(group)]
    return Case(x, w, "normal", {}, ("names",))


def far_from_zero(seed: int) -> Case:
    """One cell so large that it leaves others no digits."""
    rng = np.random.default_rng([seed, 20])
    x, w = linear(rng)
    j = f"x{rng.integers(len(w))}"
    x.loc[rng.integers(len(x)), j] = rng.choice([-1, 1]) * 10.0 ** rng.integers(9, 19)
    return Case(x, w, "normal", {}, ("far from all others",), (j,))


def near_duplicates(seed: int) -> Case:
    """Three to twenty rows that are there again, with noise of .01 to .1 sd or some cells of other rows."""
    rng = np.random.default_rng([seed, 21])
    x, w = linear(rng)
    again = x.iloc[rng.choice(len(x), int(rng.integers(3, 21)), replace=False)]
    if seed % 2:
        again = again + rng.uniform(0.01, 0.1) * x.std().to_numpy() * rng.normal(size=again.shape)
    else:
        changed = rng.random(again.shape) < rng.uniform(0.1, 0.4)
        again = again.mask(changed, x.sample(len(again), random_state=seed).to_numpy())
    x = pd.concat([x, again]).sample(frac=1, random_state=seed).reset_index(drop=True)
    return Case(x, w, "normal", {}, ("entered twice",))


def group_cell(seed: int) -> Case:
    """One far cell in groups of two to five rows: its own row has to be named, and no other of the group."""
    rng = np.random.default_rng([seed, 22])
    x, w = linear(rng)
    groups = rng.permutation(np.arange(len(x)) % (len(x) // int(rng.integers(2, 6)))).astype(str)
    i, j = int(rng.integers(len(x))), f"x{rng.integers(len(w))}"
    x.loc[i, j] = rng.choice([-1, 1]) * rng.uniform(30, 1000)
    return Case(x, w, "normal", {"groups": groups}, (f"; row '{i}')",), (j,))


def shifted_counts(rng: np.random.Generator, y: np.ndarray, likelihood: str) -> np.ndarray:
    """Counts whose log rates are .6 y beside a column's level: Poisson, or with gamma noise of shape 2."""
    rate = np.exp(rng.uniform(0.5, 2.5, y.shape[1]) + 0.6 * y)
    return rng.poisson(rate * (rng.gamma(2.0, 0.5, y.shape) if likelihood != "poisson" else 1.0)).astype(
        float
    )


def shifted_batches(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Two to four shuffled batches whose latent variables differ by sd 1 to 1.5, and loadings."""
    n, k = int(rng.integers(400, 1001)), int(rng.integers(2, 4))
    w = loadings(rng, int(rng.integers(12, 25)), k)
    n_batches, sd = int(rng.integers(2, 5)), rng.uniform(1.0, 1.5)
    batch = rng.permutation(np.arange(n) % n_batches)
    return factors(rng, n, k) @ w.T + (sd * rng.normal(size=(n_batches, len(w))))[batch], w


def batches_of_counts(seed: int) -> Case:
    """`batches` of counts whose rows are shuffled and not named; sd of log rates .6 to .9 between batches."""
    rng = np.random.default_rng([seed, 23])
    y, w = shifted_batches(rng)
    likelihood = ["poisson", "negative_binomial"][seed % 2]
    return Case(framed(shifted_counts(rng, y, likelihood)), w, likelihood, {}, ("batches",))


def batches_of_levels(seed: int) -> Case:
    """`batches` of four to seven ordered levels, cut where columns have their own thresholds."""
    rng = np.random.default_rng([seed, 24])
    y, w = shifted_batches(rng)
    y = y + 0.7 * rng.normal(size=y.shape)
    cuts = np.linspace(-1.3, 1.3, int(rng.integers(3, 7)))
    skew = rng.uniform(-0.7, 0.7, len(w))
    x = np.stack([np.digitize(y[:, j] / y[:, j].std(), cuts + skew[j]) + 1.0 for j in range(len(w))], 1)
    return Case(framed(x), w, "ordinal", {}, ("batches",))


def far_counts(seed: int) -> Case:
    """One to five per cent of the rows of counts multiplied by 5 to 20, or with a scale for each column."""
    rng = np.random.default_rng([seed, 25])
    n, k = int(rng.integers(250, 501)), int(rng.integers(2, 5))
    w = loadings(rng, k * int(rng.integers(3, 6)), k)
    likelihood = ["poisson", "negative_binomial"][seed % 2]
    x = shifted_counts(rng, factors(rng, n, k) @ w.T, likelihood)
    which = rng.choice(n, max(3, int(rng.uniform(0.01, 0.05) * n)), replace=False)
    scale = np.exp(rng.choice([-1.5, 1.5], len(w))) if seed % 4 == 2 else rng.uniform(5, 20)
    x[which] = np.rint(x[which] * scale)
    return Case(framed(x), w, likelihood, {}, ("stand apart from all others",))


def joined(seed: int) -> Case:
    """Two to six columns of persons on three to ten rows of each, beside columns that differ by row.

    Independent, or with one factor; as they are, rounded to a tenth, or with missing cells; sometimes with
    age in years and sex among them.
    """
    rng = np.random.default_rng([seed, 26])
    n_persons, n_visits = [(30, 10), (60, 5), (100, 3), (40, 7)][seed % 4]
    person = rng.permutation(np.repeat(np.arange(n_persons), n_visits))
    p = int(rng.integers(2, 7))
    w = rng.uniform(0.7, 1.2, (p, 1)) * rng.choice([-1, 1], (p, 1)) * (rng.random() < 0.4)
    of_person = framed(rng.normal(size=(n_persons, 1)) @ w.T + 0.6 * rng.normal(size=(n_persons, p)))
    variant = int(rng.integers(4))
    if variant % 2:
        of_person = of_person.round(1)
    if variant >= 2:
        of_person["x0"] = np.rint(45 + 12 * of_person["x0"])
        of_person["sex"] = rng.integers(0, 2, n_persons).astype(float)
    by_row, _ = linear(rng, len(person), k=1)
    x = of_person.iloc[person].reset_index(drop=True)
    if rng.random() < 0.3:
        x = x.mask(rng.random(x.shape) < 0.05)
    return Case(
        x.join(by_row.add_prefix("row_")), None, "normal", {}, ("repeat together",), tuple(of_person.columns)
    )


def straightlined(seed: int) -> Case:
    """Questionnaires in which 8 to 15 % of the rows have one answer to all items, or nearly all.

    Three, five or seven levels; keyed both ways, keyed one way, or with some items reversed afterwards.
    """
    rng = np.random.default_rng([seed, 27])
    x, w = linear(rng)
    n_levels = int(rng.choice([3, 5, 7]))
    variant = int(rng.integers(3))
    if variant:
        x, w = x * np.sign(w.sum(1)), np.abs(w)
    cuts = np.linspace(-1.2, 1.2, n_levels - 1)
    answers = np.digitize(x / x.std(), cuts) + 1.0
    careless = rng.random(len(x)) < rng.uniform(0.08, 0.15)
    same = rng.integers(1, n_levels + 1, (int(careless.sum()), 1)) + np.zeros(len(w))
    slips = rng.random(same.shape) < rng.choice([0.0, 0.05])
    answers[careless] = np.where(slips, rng.integers(1, n_levels + 1, same.shape), same)
    if variant == 2:
        answers[:, ::3] = n_levels + 1 - answers[:, ::3]
    names = tuple(framed(answers).columns)
    return Case(framed(answers), w, "normal", {}, ("people who did not read",), names)


def beyond_covariates(seed: int) -> Case:
    """Effects of covariates that are no lines, .3 to .8 of a column's noise, beside one that is.

    A curve; an effect that differs between two levels; schools with one number each; random walks in time, of
    which the rows are shuffled.
    """
    rng = np.random.default_rng([seed, 28])
    x, w = linear(rng)
    n, p = x.shape
    size, signs = rng.uniform(0.3, 0.8), rng.choice([-1, 1], p)
    given = pd.DataFrame({"line": rng.normal(size=n)})
    variant = seed % 4
    if variant == 0:
        given["age"] = rng.uniform(20, 70, n)
        effect = np.outer(((given["age"] - 45) / 14.4) ** 2 - 1, signs)
    elif variant == 1:
        given["age"], given["sex"] = rng.uniform(20, 70, n), rng.choice(["f", "m"], n)
        effect = np.outer((given["age"] - 45) / 14.4 * np.where(given["sex"] == "f", 1, -1), signs)
    elif variant == 2:
        n_schools = int(rng.integers(8, 25))
        school, pupils = rng.integers(0, n_schools, n), rng.normal(size=n_schools)
        given["pupils"], effect = pupils[school], rng.normal(size=(n_schools, p))[school]
    else:
        given["day"] = rng.permutation(n).astype(float)
        walk = np.cumsum(rng.normal(size=(n, p)), 0)
        effect = ((walk - walk.mean(0)) / walk.std(0))[given["day"].astype(int)]
    x += size * effect + 0.3 * np.outer(given["line"], rng.normal(size=p))
    words = ("what lines leave is",)
    return Case(x, w, "normal", {"covariates": given}, words)


def sign_change(seed: int) -> Case:
    """One column, or two of different factors, whose sign changes at a row of the middle 60 %.

    Measurements, five levels (in which the scale may have another middle than its mean) or yes/no.
    """
    rng = np.random.default_rng([seed, 28])
    x, w = linear(rng)
    variant = int(rng.integers(3))
    if variant == 1:
        x = np.digitize(x / x.std(), np.array([-1.3, -0.5, 0.4, 1.2]) + rng.choice([0.0, 0.5])) + 1.0
    if variant == 2:
        x = (x > 0).astype(float)
    x = np.array(x, dtype=float)
    chosen = rng.choice(w.shape[1], int(rng.integers(1, 3)), replace=False)  # item j is of factor j modulo k
    row = int(len(x) * rng.uniform(0.2, 0.8))
    ends = [0.0, 6.0, 1.0][variant]
    x[row:, chosen] = ends - x[row:, chosen]
    names = tuple(framed(x).columns[np.sort(chosen)])
    likelihood = ("normal", "ordinal", "bernoulli")[variant]
    return Case(framed(x), w, likelihood, {}, ("over all rows they cancel",), names)


def level_order(seed: int) -> Case:
    """One column, or two of different factors, whose levels are numbered by the alphabet, or at random.

    Beside measurements or columns of as many levels; three to six of them.
    """
    rng = np.random.default_rng([seed, 29])
    x, w = linear(rng)
    chosen = rng.choice(w.shape[1], int(rng.integers(1, 3)), replace=False)
    n_levels, as_levels = int(rng.integers(3, 7)), rng.random() < 0.5
    cells = np.array(x)
    for j in range(cells.shape[1]) if as_levels else chosen:
        shares = rng.dirichlet(np.full(n_levels, 8.0)).cumsum()[:-1]
        cells[:, j] = np.digitize(cells[:, j], np.quantile(cells[:, j], shares))
    numbers = np.arange(n_levels)
    while (np.diff(numbers) == 1).all() or (np.diff(numbers) == -1).all():
        numbers = np.array([2, 0, 1]) if n_levels == 3 else rng.permutation(n_levels)  # high < low < mid
    cells[:, chosen] = numbers[cells[:, chosen].astype(int)]
    names = tuple(framed(cells).columns[np.sort(chosen)])
    likelihood = "ordinal" if as_levels else "normal"
    return Case(framed(cells), w, likelihood, {}, ("order in which the other columns rise",), names)


KINDS: dict[str, Callable[[int], Case]] = {
    "near_copy": near_copy, "dependent": dependent, "one_hot": one_hot, "shares": shares,
    "duplicates": duplicates, "careless": careless, "cell": cell, "blocks": blocks, "likert": likert,
    "mixed": mixed, "batches": batches, "overdispersed": overdispersed, "tails": tails,
    "coded_levels": coded_levels, "codes": codes, "filled": filled, "no_counts": no_counts,
    "linked_blocks": linked_blocks, "curved_copy": curved_copy, "named_groups": named_groups,
    "far_from_zero": far_from_zero, "near_duplicates": near_duplicates, "group_cell": group_cell,
    "batches_of_counts": batches_of_counts, "batches_of_levels": batches_of_levels, "far_counts": far_counts,
    "joined": joined, "straightlined": straightlined, "beyond_covariates": beyond_covariates,
    "sign_change": sign_change, "level_order": level_order,
}  # fmt: skip


# ---- what is counted ---------------------------------------------------------------------------------------
def is_told(case: Case) -> bool:
    """Whether a finding says an expected word, and findings name what there is to name."""
    findings = ps.check_table(case.x, case.likelihood, **_per_row(case))
    said = [finding for finding in findings if any(word in str(finding) for word in case.words)]
    named = {name for finding in said for name in finding.columns}
    return bool(said) and set(case.names) <= named


def _per_row(case: Case) -> dict[str, Any]:
    """What a case gives of its rows beside their cells."""
    return {name: case.settings[name] for name in ("groups", "covariates") if name in case.settings}


def is_right(case: Case) -> bool:
    """Whether a fit's edges of share .02 or more are the true ones of the columns that have a truth."""
    if case.truth is None:
        return False
    torch.set_num_threads(1)
    n_factors = min(case.settings.get("n_factors", 5), case.x.shape[1] - 1)
    model = ps.models.SparseDecoder(case.x.shape[1], n_factors, decoder="linear", likelihood=case.likelihood)
    fit = ps.fit(model, case.x, restarts=4, progress=False, **_per_row(case))
    found = fit.effects[fit.best] >= 0.02
    truth = case.truth != 0
    if len(truth) < len(found):  # columns that were added have no edge of their own
        found = found[: len(truth)]
    found, k = found[:, found.any(0)], truth.shape[1]
    if found.shape[1] != k:
        return False
    cost = (found[:, :, None] != truth[:, None, :]).sum(0)
    return bool(cost[linear_sum_assignment(cost)].sum() == 0)


def run_case(kind: str, seed: int) -> str:
    """ "told", "right" or "silent".

    Parameters
    ----------
    kind : str
    seed : int
    """
    import warnings

    case = KINDS[kind](seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return "told" if is_told(case) else "right" if is_right(case) else "silent"


def run_kind(kind: str, seeds: list[int]) -> dict[str, int]:
    """How many tables of a kind were told of, else right, else passed in silence.

    Parameters
    ----------
    kind : str
    seeds : list of int
    """
    outcome = [run_case(kind, seed) for seed in seeds]
    return {name: outcome.count(name) for name in ("silent", "told", "right")}


def clean(n: int = 200, seed: int = 0) -> float:
    """Share of ordinary tables that are told anything.

    Parameters
    ----------
    n : int
    seed : int
        Of the first.
    """
    return float(np.mean([bool(ps.check_table(*clean_table(seed + i))) for i in range(n)]))
