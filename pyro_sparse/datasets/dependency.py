r"""Tables from a known dependency structure: which latent reaches which feature.

Diverse dictionary learning asks what can be recovered of :math:`z` when :math:`x = g(z)` and only the support
S of the Jacobian of g is sparse. `dependency_data` draws such tables,

.. math:: x_i = g_i(S_i \odot z) + \sigma\epsilon_i, \qquad z \sim N(0, I),

with an S that is diverse (every latent is identified) or not, and a g of the paper's family or outside of it.

Zheng, Li, Fan, Wilson and Zhang (2026), *Diverse dictionary learning*, arXiv 2604.17568.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_expit

from pyro_sparse._utils.checks import check_whole
from pyro_sparse.datasets._gaussian_transitions import leaky_relu
from pyro_sparse.datasets._stream import stream
from pyro_sparse.datasets.simulated import Simulated
from pyro_sparse.graphs.diversity import sufficient_diversity

__all__ = ["DEPENDENCY_MECHANISMS", "DEPENDENCY_STRUCTURES", "dependency_data", "dependency_mean"]

# Whether every latent satisfies the diversity condition (assumption 2 of the paper).
DEPENDENCY_STRUCTURES: dict[str, bool] = {
    "cycle": True,
    "triangular": True,
    "complement": True,
    "random": True,
    "ones": False,
    "duplicate": False,
}
DEPENDENCY_MECHANISMS = ("leaky_relu", "softplus", "shared_mlp", "sine", "product")

_DENSITY = 0.4  # of a random structure
_NONLINEAR = 0.7  # standard deviation of the nonlinear part, that of the linear part being 1
_HIDDEN = 10  # units of one feature's network
_SHARED = 32  # units of either layer of the shared network
_TRIES = 10_000

# Keys of the random streams: rows of one split do not move when the other split grows.
_GRAPH, _LAW, _TRAIN, _TRAIN_NOISE, _TEST, _TEST_NOISE = range(6)

_Map = Callable[[np.ndarray], np.ndarray]


def dependency_data(
    structure: str | ArrayLike = "random",
    d_z: int = 5,
    d_x: int | None = None,
    n: int = 10_000,
    *,
    mechanism: str = "leaky_relu",
    noise: float = 0.03,
    n_test: int = 0,
    seed: int = 0,
) -> Simulated:
    r"""Features that each depend on a known set of independent normal latents.

    .. math::

        x_i = a_i^\top (S_i \odot z) + 0.7\, f_i(S_i \odot z) + \sigma\epsilon_i, \qquad z \sim N(0, I),
        \qquad |a_{ij}| \sim U(\tfrac12, \tfrac32),

    both parts scaled to variance 1, and the feature to mean 0 and variance 1 before the noise.

    Parameters
    ----------
    structure : str or array_like of shape (d_x, d_z)
        S, by name or as a table of zeros and ones (`d_z` and `d_x` are then not read). Diverse are
        ``"cycle"`` (feature i depends on latents i and i + 1), ``"triangular"`` (on i and all after it),
        ``"complement"`` (on all but i) and ``"random"`` (edges with probability 0.4, redrawn until every
        latent satisfies a diversity condition and no two have the same features). Not diverse are
        ``"ones"`` and ``"duplicate"`` (random, the last latent with the features of the first).
    d_z : int
        Latents, at least 2; at least 3 for a cycle or a duplicate.
    d_x : int, optional
        Features, at least `d_z`; by default ``3 * d_z``. Structures of d_z rows are repeated, a random one
        draws all its rows. ``d_x = d_z`` is a poor test: the table itself is as sparse as the truth, so that
        x scores an MCC of up to 0.84, and x no longer tells all of z (kernel regression of a latent on x has
        an R squared of 0.2 to 0.9; at ``3 * d_z`` mostly above 0.95): its map folds, and even posterior means
        by the distribution itself score 0.72 to 0.998 on twelve such tables (d_z of 3 and 5, two seeds).
    n : int
        Training rows.
    mechanism : str
        The nonlinear part f. ``"leaky_relu"``: one hidden layer of 10 LeakyReLU units of slope 0.2 for each
        feature, the paper's family; ``"softplus"``: the same, its corner rounded. ``"shared_mlp"``: one
        network with two hidden layers of 32 LeakyReLU units, fed with :math:`S_i \odot z`, and a linear head
        for each feature, in place of both parts (the Sparse VAE's decoder). ``"sine"``:
        :math:`\sin(2w_i^\top z + \phi_i)` with unit :math:`w_i`; ``"product"``:
        :math:`\sum_{j<k} b_{ijk} z_j z_k` over the feature's latents (none where it has one latent).
    noise : float
        :math:`\sigma`, in standard deviations of a feature.
    n_test : int
        Further rows, from the same distribution, for the test split.
    seed : int
        Seed of everything.

    Returns
    -------
    Simulated
        Table of shape (n + n_test, d_x); its `support` is S.

    Raises
    ------
    ValueError
        If an argument is out of range, or no random structure of that size is diverse.

    References
    ----------
    Zheng et al. (2026), assumption 2 and section on experiments.

    Examples
    --------
    >>> data = dependency_data("cycle", d_z=3, n=100)
    >>> data.x.shape, data.support[:3].tolist()
    ((100, 9), [[1, 1, 0], [0, 1, 1], [1, 0, 1]])
    """
    check_whole(2, n=n)
    check_whole(0, n_test=n_test)
    if mechanism not in DEPENDENCY_MECHANISMS:
        raise ValueError(f"mechanism={mechanism!r}: want one of {', '.join(DEPENDENCY_MECHANISMS)}")
    if not 0 <= noise < np.inf:
        raise ValueError(f"noise={noise} is a standard deviation: want a finite number, at least 0")
    named = isinstance(structure, str)
    support = _named(structure, d_z, d_x, seed) if isinstance(structure, str) else _given(structure)
    rows, width = support.shape
    settings: dict[str, Any] = {
        "structure": structure if named else support.tolist(),
        "d_z": width,
        "d_x": rows,
        "n": n,
        "mechanism": mechanism,
        "noise": noise,
        "n_test": n_test,
        "seed": seed,
    }
    z = np.vstack([_latents(settings), stream(seed, _TEST).standard_normal((n_test, width))])
    errors = [stream(seed, key).standard_normal((size, rows)) for key, size in _sizes(n, n_test)]
    return Simulated(
        name=f"dependency-{structure if named else 'given'}",
        x=_decoder(support, settings)(z) + noise * np.vstack(errors),
        z=z,
        support=support,
        kind=(mechanism,) * rows,
        feature_names=[f"x{i + 1}" for i in range(rows)],
        factor_names=[f"z{j + 1}" for j in range(width)],
        splits={"train": np.arange(n), "test": np.arange(n, n + n_test)},
        settings=settings,
    )


def dependency_mean(data: Simulated, z: ArrayLike) -> np.ndarray:
    """Features of given latents, without noise: the g behind a table.

    Parameters
    ----------
    data : Simulated
        What `dependency_data` returned.
    z : array_like of shape (N, d_z)
        Latents.

    Returns
    -------
    ndarray of shape (N, d_x)

    Raises
    ------
    ValueError
        If `data` comes from elsewhere or `z` has another width.

    Examples
    --------
    >>> data = dependency_data("cycle", d_z=3, n=100, noise=0.0)
    >>> bool(np.allclose(dependency_mean(data, data.z), data.x))
    True
    """
    if not data.name.startswith("dependency-"):
        raise ValueError(f"data: want what dependency_data() returned, got {data.name!r}")
    latent = np.asarray(z, dtype=float)
    if latent.ndim != 2 or latent.shape[1] != data.support.shape[1]:
        raise ValueError(f"z: want shape (N, {data.support.shape[1]}), got {latent.shape}")
    return _decoder(data.support, data.settings)(latent)


def _sizes(n: int, n_test: int) -> tuple[tuple[int, int], tuple[int, int]]:
    return (_TRAIN_NOISE, n), (_TEST_NOISE, n_test)


def _latents(settings: Mapping[str, Any]) -> np.ndarray:
    return stream(settings["seed"], _TRAIN).standard_normal((settings["n"], settings["d_z"]))


# ------------------------------------------------------------------------------------------- structures


def _named(structure: str, d_z: int, d_x: int | None, seed: int) -> np.ndarray:
    if structure not in DEPENDENCY_STRUCTURES:
        raise ValueError(
            f"structure={structure!r}: want one of {', '.join(DEPENDENCY_STRUCTURES)}, or a table of 0 and 1"
        )
    check_whole(3 if structure in ("cycle", "duplicate") else 2, d_z=d_z)
    rows = 3 * d_z if d_x is None else d_x
    check_whole(d_z, d_x=rows)
    if structure == "random":
        return _random(rows, d_z, seed)
    if structure == "duplicate":
        support = _random(rows, d_z - 1, seed)
        return np.column_stack([support, support[:, 0]])
    eye = np.eye(d_z, dtype=int)
    base = {
        "cycle": eye + np.roll(eye, 1, axis=1),
        "triangular": np.triu(np.ones((d_z, d_z), dtype=int)),
        "complement": 1 - eye,
        "ones": np.ones((d_z, d_z), dtype=int),
    }[structure]
    return base[np.arange(rows) % d_z]


def _given(structure: ArrayLike) -> np.ndarray:
    table = np.asarray(structure)
    if (
        table.ndim != 2
        or not np.isin(table, (0, 1)).all()
        or not table.any(1).all()
        or not table.any(0).all()
    ):
        raise ValueError(
            f"structure: want a table (d_x, d_z) of 0 and 1 in which no feature and no latent is alone, "
            f"got shape {table.shape}; drop empty rows and columns"
        )
    return table.astype(int)


def _random(rows: int, d_z: int, seed: int) -> np.ndarray:
    rng = stream(seed, _GRAPH)
    for _ in range(_TRIES):
        support = rng.random((rows, d_z)) < _DENSITY
        empty = ~support.any(1)
        support[empty, rng.integers(d_z, size=int(empty.sum()))] = True
        if len(np.unique(support.T, axis=0)) == d_z and sufficient_diversity(support).holds:
            return support.astype(int)
    raise ValueError(
        f"structure='random': none of {_TRIES} draws with d_x={rows}, d_z={d_z} is diverse; raise d_x"
    )


# ------------------------------------------------------------------------------------------- mechanisms


def _decoder(support: np.ndarray, settings: Mapping[str, Any]) -> _Map:
    """The map from latents to features; the training rows set every scale."""
    terms = _terms(support.astype(bool), settings["mechanism"], stream(settings["seed"], _LAW))
    train = _latents(settings)
    sized = [(weight, term, *_moments(term(train))) for weight, term in terms]

    def raw(z: np.ndarray) -> np.ndarray:
        return sum((w * (term(z) - m) / s for w, term, m, s in sized), np.zeros((len(z), len(support))))

    mean, deviation = _moments(raw(train))
    return lambda z: (raw(z) - mean) / deviation


def _moments(table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    deviation = table.std(0)
    return table.mean(0), np.where(deviation > 0, deviation, 1.0)


def _terms(support: np.ndarray, mechanism: str, rng: np.random.Generator) -> list[tuple[float, _Map]]:
    if mechanism == "shared_mlp":
        return [(1.0, _shared(support, rng))]
    size = rng.uniform(0.5, 1.5, support.shape) * rng.choice([-1, 1], support.shape) * support
    draw = {"leaky_relu": _network, "softplus": _network, "sine": _sine, "product": _product}[mechanism]
    activation = _rounded if mechanism == "softplus" else leaky_relu
    maps = [draw(int(s.sum()), rng, activation) for s in support]

    def bent(z: np.ndarray) -> np.ndarray:
        return np.column_stack([f(z[:, s]) for f, s in zip(maps, support, strict=True)])

    return [(1.0, lambda z: z @ size.T), (_NONLINEAR, bent)]


def _rounded(u: np.ndarray) -> np.ndarray:
    return 0.2 * u - 0.2 * log_expit(-4 * u)  # 0.8 softplus(4u) / 4


def _network(k: int, rng: np.random.Generator, activation: _Map) -> _Map:
    into = rng.standard_normal((k, _HIDDEN)) / np.sqrt(k)
    bias, out = 0.5 * rng.standard_normal(_HIDDEN), rng.standard_normal(_HIDDEN)
    return lambda z: activation(z @ into + bias) @ out


def _sine(k: int, rng: np.random.Generator, activation: _Map) -> _Map:
    w, phase = rng.standard_normal(k), rng.uniform(0, 2 * np.pi)
    return lambda z: np.sin(2 * z @ w / np.linalg.norm(w) + phase)


def _product(k: int, rng: np.random.Generator, activation: _Map) -> _Map:
    b = np.triu(rng.uniform(0.5, 1.5, (k, k)) * rng.choice([-1, 1], (k, k)), 1)
    return lambda z: ((z @ b) * z).sum(1)


def _shared(support: np.ndarray, rng: np.random.Generator) -> _Map:
    d_z = support.shape[1]
    into = rng.standard_normal((d_z, _SHARED)) / np.sqrt(support.sum(1).mean())
    across = rng.standard_normal((_SHARED, _SHARED)) / np.sqrt(_SHARED)
    first, second = 0.5 * rng.standard_normal((2, _SHARED))
    heads = rng.standard_normal((len(support), _SHARED))

    def features(z: np.ndarray) -> np.ndarray:
        return np.column_stack(
            [
                leaky_relu(leaky_relu(z * s @ into + first) @ across + second) @ h
                for s, h in zip(support, heads, strict=True)
            ]
        )

    return features
