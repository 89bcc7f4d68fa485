r"""Does each code carry one factor, each factor one code? Scores for factors that have levels.

Factors are given as levels, whole numbers of shape (N, F), such as those of 3D Shapes, Cars3D and MPI3D;
codes (N, K) are any encoder's. The FactorVAE score holds a factor still and looks which code moves least; MIG
and modularity ask mutual information, of a factor with its best and its second code, and of a code with its
best factor and the others; SAP does so with how well thresholds on one code predict a factor. `dci` of
discrete factors is in `pyro_sparse.metrics.factors`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from pyro_sparse._utils.checks import check_whole
from pyro_sparse.metrics._check import levels_and_codes

__all__ = ["FactorVAEScore", "factor_vae_score", "mig", "modularity", "sap"]

_CHUNK = 1000  # votes at once, which bounds the memory


class FactorVAEScore(NamedTuple):
    """Accuracy of the vote of the code that moves least, and the votes.

    Parameters
    ----------
    value : float
        Share of test votes for the right factor, in [0, 1].
    votes : ndarray of int, shape (K, F)
        Training votes: how often each code moved least while each factor stood still.
    active : ndarray of bool, shape (K,)
        Codes that were looked at.
    """

    value: float
    votes: np.ndarray
    active: np.ndarray


def factor_vae_score(
    levels: ArrayLike,
    codes: ArrayLike,
    *,
    # the numbers of Zheng et al. (2026), whose figures are compared with
    batch: int = 64,
    n_train: int = 10_000,
    n_test: int = 5_000,
    min_sd: float = 0.05,
    seed: int = 0,
) -> FactorVAEScore:
    r"""Hold one factor still: which code varies least, and does that tell the factor?

    A vote draws a factor f, one of its levels, and `batch` of the rows that have it, and is for the code

    .. math:: k^* = \arg\min_k \frac{\mathrm{Var}_{\text{batch}}(c_k)}{\mathrm{Var}_{\text{all}}(c_k)}.

    Each code stands for the factor that most of its training votes came from; the score is the share of test
    votes that it is right in. Codes that are drawn at random score about 1/F.

    Parameters
    ----------
    levels : array_like of int, shape (N, F)
        Level of each factor in each row.
    codes : array_like of shape (N, K)
        Codes of those rows: of all images, or of enough of them at random that each level has dozens. Rows
        are drawn with replacement.
    batch : int
        Rows of a vote.
    n_train, n_test : int
        Votes.
    min_sd : float
        Codes whose standard deviation is below are taken to be switched off and left out; 0 if none is.
    seed : int
        Seed of the votes.

    Returns
    -------
    FactorVAEScore

    Raises
    ------
    ValueError
        If shapes do not fit, a factor has one level, a level has one row, or an argument is out of range.

    References
    ----------
    Kim and Mnih (2018), *Disentangling by factorising*, section 4.

    Examples
    --------
    >>> levels = np.random.default_rng(0).integers(5, size=(1000, 3))
    >>> factor_vae_score(levels, levels[:, [2, 0, 1]] * [1.0, -2.0, 5.0], n_train=500, n_test=500).value
    1.0
    """
    level, code = levels_and_codes(levels, codes)
    check_whole(2, batch=batch)
    check_whole(1, n_train=n_train, n_test=n_test)
    if not min_sd >= 0:
        raise ValueError(f"min_sd={min_sd} is a standard deviation: want a number, at least 0")
    sizes = [np.bincount(column) for column in level.T]
    for k, size in enumerate(sizes):
        if size.min() < 2:
            raise ValueError(
                f"levels: a level of factor {k} has one row only, so that nothing varies; encode more images"
            )
    spread = code.std(0)
    active = spread > max(min_sd, 1e-12)
    votes = np.zeros((code.shape[1], level.shape[1]), dtype=int)
    if not active.any():
        return FactorVAEScore(0.0, votes, active)
    rng = np.random.default_rng(seed)
    scaled = (code - code.mean(0))[:, active] / spread[active]
    factor, least_moved = _votes(scaled, level, sizes, batch, n_train + n_test, rng)
    table = np.zeros((scaled.shape[1], level.shape[1]), dtype=int)
    np.add.at(table, (least_moved[:n_train], factor[:n_train]), 1)
    votes[active] = table
    right = table.argmax(1)[least_moved[n_train:]] == factor[n_train:]
    return FactorVAEScore(float(right.mean()), votes, active)


def _votes(
    scaled: np.ndarray,
    level: np.ndarray,
    sizes: list[np.ndarray],
    batch: int,
    n: int,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """The factor held still, and the code that moved least, of n votes."""
    rows = [np.argsort(column, kind="stable") for column in level.T]  # those of one level side by side
    starts = [np.cumsum(size) - size for size in sizes]
    factor = rng.integers(level.shape[1], size=n)
    least = np.empty(n, dtype=int)
    for k in range(level.shape[1]):
        mine = np.flatnonzero(factor == k)
        for some in np.array_split(mine, len(mine) // _CHUNK + 1):
            value = rng.integers(len(sizes[k]), size=len(some))
            inside = rng.integers(sizes[k][value][:, None], size=(len(some), batch))
            least[some] = scaled[rows[k][starts[k][value][:, None] + inside]].var(1).argmin(1)
    return factor, least


def mig(levels: ArrayLike, codes: ArrayLike, bins: int = 20) -> float:
    r"""Mutual information gap: what the best code says of a factor beyond the second best.

    .. math:: \mathrm{MIG} = \frac1F\sum_f \frac{I(c_{(1)}; f) - I(c_{(2)}; f)}{H(f)}

    with codes cut into bins of equal width, and codes ordered by their information on f.

    Parameters
    ----------
    levels : array_like of int, shape (N, F)
        Level of each factor in each row.
    codes : array_like of shape (N, K)
        Codes of those rows. With one code the second best says nothing.
    bins : int
        Of each code.

    Returns
    -------
    float
        Value in [0, 1].

    Raises
    ------
    ValueError
        If shapes do not fit, a factor has one level, or `bins` is below 2.

    References
    ----------
    Chen, Li, Grosse and Duvenaud (2018), equation 6; bins as in Locatello et al. (2019).

    Examples
    --------
    >>> levels = np.random.default_rng(0).integers(4, size=(1000, 2))
    >>> round(mig(levels, levels[:, ::-1]), 2), round(mig(levels, levels[:, [0, 0, 1, 1]]), 2)
    (1.0, 0.0)
    """
    level, code = levels_and_codes(levels, codes)
    information = _information(level, code, bins)
    share = [np.bincount(column) / len(column) for column in level.T]
    entropy = np.array([-(p * np.log(p)).sum() for p in share])
    return float(np.mean(_gap(information) / entropy))


def modularity(levels: ArrayLike, codes: ArrayLike, bins: int = 20) -> float:
    r"""Does a code tell of one factor only?

    .. math:: \frac1K\sum_k \Bigl(1 - \frac{\sum_{f \ne f_k} I(c_k; f)^2}{(F-1)\, I(c_k; f_k)^2}\Bigr), \qquad
              f_k = \arg\max_f I(c_k; f),

    with codes cut into bins of equal width; a constant code counts 0. Information that is there by chance is
    compared too: codes of noise score well above 0, so that it is read beside `mig` or `dci`.

    Parameters
    ----------
    levels : array_like of int, shape (N, F)
        Level of each factor in each row, two factors or more.
    codes : array_like of shape (N, K)
        Codes of those rows.
    bins : int
        Of each code.

    Returns
    -------
    float
        Value in [0, 1].

    Raises
    ------
    ValueError
        If shapes do not fit, there is one factor or one with one level, or `bins` is below 2.

    References
    ----------
    Ridgeway and Mozer (2018), *Learning deep disentangled embeddings with the F-statistic loss*, section 3.

    Examples
    --------
    >>> levels = np.random.default_rng(0).integers(4, size=(10_000, 2))
    >>> round(modularity(levels, levels[:, [0, 0, 1]]), 2), round(modularity(levels, levels @ [[1], [4]]), 2)
    (1.0, 0.0)
    """
    level, code = levels_and_codes(levels, codes)
    if level.shape[1] < 2:
        raise ValueError("levels: want two factors or more, got one, of which every code is modular")
    square = _information(level, code, bins) ** 2
    best = square.max(1)
    others = (square.sum(1) - best) / (level.shape[1] - 1)
    return float(np.where(best > 0, 1 - others / np.where(best > 0, best, 1.0), 0.0).mean())


def sap(
    levels: ArrayLike, codes: ArrayLike, *, discrete: bool = True, folds: int = 5, seed: int = 0
) -> float:
    r"""Separated attribute predictability: how much better the best code predicts a factor than the second.

    .. math:: \mathrm{SAP} = \frac1F\sum_f \bigl(S_{(1)f} - S_{(2)f}\bigr)

    with :math:`S_{kf}` the cross-validated balanced accuracy of thresholds on code k (one fewer than the
    factor's levels), or, with ``discrete=False``, the squared correlation. Constant codes have S = 0.

    Parameters
    ----------
    levels : array_like of int, shape (N, F)
        Level of each factor in each row.
    codes : array_like of shape (N, K)
        Codes of those rows. With one code the second best has S = 0.
    discrete : bool
        Levels have no order, or codes need not be linear in them. A code that says nothing is right once in
        as many times as there are levels, which the gap of a perfect one falls short of 1 by.
    folds : int
        Of the cross-validation.
    seed : int
        Seed of the folds.

    Returns
    -------
    float
        Value in [0, 1].

    Raises
    ------
    ValueError
        If shapes do not fit or a factor has one level.

    References
    ----------
    Kumar, Sattigeri and Balakrishnan (2018), *Variational inference of disentangled latent concepts from
    unlabeled observations*, section 3.

    Examples
    --------
    >>> levels = np.random.default_rng(0).integers(4, size=(10_000, 2))
    >>> round(sap(levels, levels[:, ::-1]), 2), round(sap(levels, levels[:, ::-1], discrete=False), 2)
    (0.75, 1.0)
    """
    level, code = levels_and_codes(levels, codes)
    moves = np.ptp(code, axis=0) > 0
    score = np.zeros((code.shape[1], level.shape[1]))
    for k in np.flatnonzero(moves):
        for f, factor in enumerate(level.T):
            score[k, f] = (
                _balanced_accuracy(code[:, [k]], factor, folds, seed)
                if discrete
                else np.corrcoef(code[:, k], factor)[0, 1] ** 2
            )
    return float(_gap(score).mean())


def _balanced_accuracy(code: np.ndarray, factor: np.ndarray, folds: int, seed: int) -> float:
    from sklearn.model_selection import KFold, cross_val_predict
    from sklearn.tree import DecisionTreeClassifier

    tree = DecisionTreeClassifier(
        max_leaf_nodes=int(factor.max()) + 1, class_weight="balanced", random_state=seed
    )
    guess = cross_val_predict(tree, code, factor, cv=KFold(folds, shuffle=True, random_state=seed))
    return float(
        (np.bincount(factor[guess == factor], minlength=factor.max() + 1) / np.bincount(factor)).mean()
    )


def _information(level: np.ndarray, code: np.ndarray, bins: int) -> np.ndarray:
    """Mutual information, in nats, of each binned code with each factor: (K, F)."""
    from sklearn.metrics import mutual_info_score

    check_whole(2, bins=bins)
    binned = [np.digitize(column, np.histogram_bin_edges(column, bins)[1:-1]) for column in code.T]
    return np.array([[mutual_info_score(factor, column) for factor in level.T] for column in binned])


def _gap(score: np.ndarray) -> np.ndarray:
    """Best minus second best code of each factor."""
    ordered = np.sort(np.vstack([score, np.zeros((1, score.shape[1]))]), axis=0)
    gap: np.ndarray = ordered[-1] - ordered[-2]
    return gap
