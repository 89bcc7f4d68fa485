"""Factor models of other packages, and ours, behind one call: `METHODS[name].fit(table, seed, quick)`.

Each is run at its documented defaults, told the number of factors and the seed; a second row of a package is
one option that its documentation offers for the purpose (`asked` says which). What comes back: factors of the
rows, standardised loadings and, where the package has them, edge probabilities, with the CPU seconds of both.
Packages are imported before the clock starts; those that are not installed do no harm until they are called.
"""

from __future__ import annotations

import operator
import os
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
QUICK_FIT = {"restarts": 2, "steps": 300}  # ours, with --quick
QUICK_SWEEPS = 60


@dataclass(frozen=True, eq=False)
class Table:
    """What a method sees.

    Attributes
    ----------
    x : ndarray of shape (row, feature)
        Columns of mean 0 and variance 1, or counts.
    n_factors : int
    counts : bool
    """

    x: Array
    n_factors: int
    counts: bool = False

    @property
    def gaussian(self) -> Array:
        """The table for methods of continuous data: of counts log(1 + x), each column standardised."""
        return zscored(np.log1p(self.x)) if self.counts else self.x


@dataclass(frozen=True, eq=False)
class Found:
    """What a method says.

    Attributes
    ----------
    factors : ndarray of shape (row, factor)
    loading : ndarray of shape (feature, factor)
        By its size: how strongly. Comparable between features and between factors.
    fit_seconds, edge_seconds : float
        CPU seconds of the fit, and of the probabilities where they cost extra.
    probability : ndarray of shape (feature, factor), optional
        That there is an edge.
    """

    factors: Array
    loading: Array
    fit_seconds: float
    edge_seconds: float = 0.0
    probability: Array | None = None


@dataclass(frozen=True)
class Method:
    """A row of the table.

    Attributes
    ----------
    fit : callable
        ``fit(table, seed, quick)``, a `Found`.
    package, module : str
        What pip installs, and what Python imports.
    asked : str
        What the defaults are, or what is asked beyond them.
    needs_counts : bool
        Whether it is for tables of counts only.
    """

    fit: Callable[[Table, int, bool], Found]
    package: str
    module: str
    asked: str
    needs_counts: bool = False

    @property
    def installed(self) -> bool:
        return find_spec(self.module) is not None

    @property
    def version(self) -> str:
        try:
            return metadata.version(self.package)
        except metadata.PackageNotFoundError:
            return "source tree"


def zscored(x: Array) -> Array:
    """Columns of mean 0 and variance 1."""
    return (x - x.mean(0)) / x.std(0)


def cpu() -> float:
    """CPU seconds of this process and of the children that it has seen end."""
    ended = os.times()
    return time.process_time() + ended.children_user + ended.children_system


def standardised(weight: Array, factors: Array, sd: Array | float = 1.0) -> Array:
    """Weights (feature, factor) for factors of variance 1 and features of standard deviation `sd`."""
    return weight * factors.std(0) / np.broadcast_to(sd, len(weight))[:, None]


def ours(table: Table, seed: int, quick: bool, depth: Any = "auto", **of_model: Any) -> Found:
    import pyro_sparse as ps

    counts = ps.likelihoods.NegativeBinomial(size_factors=depth)
    likelihood = counts if table.counts else "normal"
    model = ps.models.SparseDecoder(
        n_features=table.x.shape[1], n_factors=table.n_factors, likelihood=likelihood, **of_model
    )
    start = cpu()
    fit = ps.fit(model, table.x, seed=seed, progress=False, **(QUICK_FIT if quick else {}))
    fitted = cpu()
    if quick:
        idata = fit.edge_posterior("mcmc", sweeps=QUICK_SWEEPS, num_draws=10)
    else:
        idata = fit.edge_posterior()
    end = cpu()
    score = bool(idata.attrs["is_score"])
    return Found(
        factors=fit.transform(table.x),
        loading=np.sqrt(fit.effects[fit.best]),  # rows of W have their largest entry at 1, and no scale
        fit_seconds=fitted - start,
        edge_seconds=end - fitted,
        probability=None if score else idata["edge_posterior"]["probability"].to_numpy(),
    )


def ours_linear(table: Table, seed: int, quick: bool) -> Found:
    return ours(table, seed, quick, decoder="linear")


def ours_depth(table: Table, seed: int, quick: bool) -> Found:
    return ours(table, seed, quick, depth=True)


def ours_linear_depth(table: Table, seed: int, quick: bool) -> Found:
    return ours(table, seed, quick, depth=True, decoder="linear")


def factor_analysis(table: Table, seed: int, quick: bool, **options: Any) -> Found:
    from sklearn.decomposition import FactorAnalysis

    x, start = table.gaussian, cpu()
    model = FactorAnalysis(table.n_factors, random_state=seed, **options).fit(x)
    seconds = cpu() - start
    factors = model.transform(x)
    # Of the model's law, z has variance 1; scores of rows have less, the less the less is known of z.
    return Found(factors, model.components_.T, seconds)


def varimax(table: Table, seed: int, quick: bool) -> Found:
    return factor_analysis(table, seed, quick, rotation="varimax")


def mofapy2(table: Table, seed: int, quick: bool, log: bool = False) -> Found:
    from mofapy2.run.entry_point import entry_point

    x = np.array(table.gaussian if log else table.x)  # it centres in place
    start = cpu()
    run = entry_point()
    run.set_data_matrix([[x]])
    run.set_model_options(factors=table.n_factors)
    run.set_train_options(seed=seed, quiet=True)
    run.build()
    run.run()
    nodes = run.model.getNodes()
    seconds = cpu() - start
    factors, weights = np.asarray(nodes["Z"].getExpectation()), nodes["W"].getNodes()[0]
    sd = table.x.std(0) if table.counts and not log else 1.0  # the rate of its Poisson is softplus, not exp
    return Found(
        factors,
        standardised(np.asarray(weights.getExpectation()), factors, sd),
        seconds,
        probability=np.asarray(weights.Q.getParameters()["theta"]),
    )


def mofapy2_log(table: Table, seed: int, quick: bool) -> Found:
    return mofapy2(table, seed, quick, log=True)


def muvi(table: Table, seed: int, quick: bool) -> Found:
    from pyro.infer.autoguide import guides

    if not hasattr(guides, "deep_getattr"):  # MuVI 0.2.2 imports it; pyro-ppl 1.9.2 has it no more
        guides.deep_getattr = lambda thing, name: operator.attrgetter(name)(thing)
    from muvi import MuVI

    x, start = table.gaussian, cpu()
    model = MuVI({"x": x}, n_factors=table.n_factors, device="cpu")
    model.fit(seed=seed, verbose=False)
    seconds = cpu() - start
    factors = np.asarray(model.get_factor_scores())
    return Found(factors, standardised(np.asarray(model.get_factor_loadings()["x"]).T, factors), seconds)


def mofaflex(table: Table, seed: int, quick: bool, prior: str = "", rate: float | None = None) -> Found:
    import mofaflex as package
    from anndata import AnnData

    of_model = {"weight_prior": prior} if prior else {}
    of_training = {} if rate is None else {"lr": rate}
    start = cpu()
    model = package.MOFAFLEX(
        {"rows": {"x": AnnData(table.x.astype(np.float32))}},
        package.DataOptions(plot_data_overview=False),
        package.ModelOptions(n_factors=table.n_factors, **of_model),
        package.TrainingOptions(device="cpu", seed=seed, save_path=False, **of_training),
    )
    seconds = cpu() - start
    factors, weight = model.get_factors("numpy")["rows"], model.get_weights("numpy")["x"].T
    # Its mean of counts is linear: relu(z w) times the mean of the row.
    sd = table.x.std(0) / table.x.mean() if table.counts else 1.0
    sure = model.get_sparse_weight_probabilities("numpy")["x"].T if prior == "SnS" else None
    return Found(factors, standardised(weight, factors, sd), seconds, probability=sure)


def mofaflex_sns(table: Table, seed: int, quick: bool) -> Found:
    return mofaflex(table, seed, quick, "SnS")


def mofaflex_horseshoe(table: Table, seed: int, quick: bool) -> Found:
    return mofaflex(table, seed, quick, "Horseshoe", 0.05)


def linear_scvi(table: Table, seed: int, quick: bool) -> Found:
    import scvi
    from anndata import AnnData

    scvi.settings.seed = seed
    start = cpu()
    data = AnnData(table.x.astype(np.float32))
    scvi.model.LinearSCVI.setup_anndata(data)
    model = scvi.model.LinearSCVI(data, n_latent=table.n_factors)
    model.train(accelerator="cpu", enable_progress_bar=False)
    seconds = cpu() - start
    factors = model.get_latent_representation()
    return Found(factors, standardised(model.get_loadings().to_numpy(), factors), seconds)


METHODS = {
    "ours": Method(ours, "pyro-sparse", "pyro_sparse", "SparseDecoder and ps.fit as they are; NB for counts"),
    "ours_linear": Method(ours_linear, "pyro-sparse", "pyro_sparse", 'the same with decoder="linear"'),
    "ours_depth": Method(
        ours_depth,
        "pyro-sparse",
        "pyro_sparse",
        "size_factors=True: totals are taken for depth, although rows do not differ in it",
        needs_counts=True,
    ),
    "ours_linear_depth": Method(
        ours_linear_depth,
        "pyro-sparse",
        "pyro_sparse",
        'the same with decoder="linear"',
        needs_counts=True,
    ),
    "fa": Method(factor_analysis, "scikit-learn", "sklearn", "maximum likelihood, rotation=None"),
    "fa_varimax": Method(varimax, "scikit-learn", "sklearn", 'rotation="varimax"'),
    "mofapy2": Method(
        mofapy2,
        "mofapy2",
        "mofapy2",
        "spike and slab and ARD on the weights, up to 1,000 iterations, fast convergence; counts: Poisson",
    ),
    "mofapy2_log": Method(mofapy2_log, "mofapy2", "mofapy2", "the same of log(1 + x)", needs_counts=True),
    "muvi": Method(
        muvi,
        "muvi",
        "muvi",
        "no feature sets: regularised horseshoe, at most 10,000 steps with early stopping; log(1 + x)",
    ),
    "mofaflex": Method(
        mofaflex, "mofaflex", "mofaflex", "normal weights and factors, likelihood as it infers, rate .001"
    ),
    "mofaflex_sns": Method(mofaflex_sns, "mofaflex", "mofaflex", 'the same with weight_prior="SnS"'),
    "mofaflex_horseshoe": Method(
        mofaflex_horseshoe, "mofaflex", "mofaflex", "weights and rate (.05) of its preset MOFA"
    ),
    "linear_scvi": Method(
        linear_scvi,
        "scvi-tools",
        "scvi",
        "negative binomial, 128 hidden units, at most 400 epochs",
        needs_counts=True,
    ),
}


def available(asked: list[str] | None, usual: Iterable[str]) -> list[str]:
    """Methods to run: those asked for, or the usual ones whose package is here; stderr says what is missing.

    Names that are not in `METHODS` need no package beyond ours.

    Raises
    ------
    SystemExit
        If the package of a method that was asked for by name is not installed.
    """
    names = asked or list(usual)
    absent = [name for name in names if name in METHODS and not METHODS[name].installed]
    packages = list(dict.fromkeys(METHODS[name].package for name in absent))
    how = "; ".join(f"{package} is not installed (pip install {package})" for package in packages)
    if asked and absent:
        raise SystemExit(f"--methods {' '.join(absent)}: {how}")
    if absent:
        print(f"left out: {', '.join(absent)}: {how}", file=sys.stderr)
    return [name for name in names if name not in absent]
