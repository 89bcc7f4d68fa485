"""Numbers and threads: does a setting of the caller's, a dtype or another thread change an answer in silence?

Every case is a tiny fit and its chains. `KINDS` names a function of a seed for each kind of fault, which says
"right" (the answer is that of a call alone, under the defaults of torch and NumPy), "told" (an error of ours
says what is wrong) or "silent" (another answer, or an error from within). ``benchmarks.faults`` runs these
beside other kinds.
"""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Literal

import numpy as np
import torch

import pyro_sparse as ps

__all__ = ["KINDS", "Outcome", "run_kind"]

Outcome = Literal["silent", "told", "right"]
Answer = dict[str, np.ndarray]

_LIKELIHOODS = ("normal", "bernoulli", "poisson", "negative_binomial", "multinomial")
_CHAINS: dict[str, Any] = {"method": "mcmc", "sweeps": 24, "warm_up": 4, "num_draws": 6, "chains": 2}
_OURS = (ValueError, TypeError, RuntimeError)


def _table(likelihood: str, seed: int) -> np.ndarray:
    """24 rows of five features on two factors."""
    rng = np.random.default_rng(seed)
    f = rng.normal(size=(24, 2)) @ np.array([[1.5, 1.5, 0, 0, 1], [0, 0, 1.5, 1.5, 1]])
    if likelihood == "normal":
        return f + 0.3 * rng.normal(size=f.shape)
    if likelihood == "bernoulli":
        return (f + rng.logistic(size=f.shape) > 0).astype(float)
    return rng.poisson(np.exp(1 + 0.4 * f)) + 1.0


def _fit(seed: int, likelihood: str, dtype: str = "float32") -> Any:
    model = ps.models.SparseDecoder(n_factors=2, encoder_hidden=3, decoder="linear", likelihood=likelihood)
    x = _table(likelihood, seed)
    return ps.fit(model, x, restarts=1, steps=6, seed=seed, dtype=dtype, progress=False, patience=None)


def _edges(fit: Any, seed: int) -> np.ndarray:
    return ps.edge_prob(fit.edge_posterior(**_CHAINS, seed=seed)).to_numpy()


def _answer(seed: int) -> Answer:
    """All of a fit whose likelihood goes by the seed: made, asked, and its edges."""
    likelihood = _LIKELIHOODS[seed % len(_LIKELIHOODS)]
    fit = _fit(seed, likelihood)
    return {
        "weights": fit.weights,
        "transform": fit.transform(_table(likelihood, seed)[:4]),
        "predict": fit.predict(),
        "sample": fit.sample(3, seed=seed),
        "edges": _edges(fit, seed),
    }


def _compared(expected: Answer, found: Answer) -> Outcome:
    same = all(name in found and np.array_equal(found[name], own) for name, own in expected.items())
    return "right" if same else "silent"


def _is_message(error: BaseException) -> bool:
    """Whether an error is of the package's form, "argument: found, wanted, fix", and no library's."""
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    inside = frame is not None and "pyro_sparse" in str(frame.tb_frame.f_globals.get("__name__", ""))
    return isinstance(error, _OURS) and inside and ": " in str(error)


def _judged(case: Callable[[], Outcome]) -> Outcome:
    try:
        return case()
    except Exception as error:
        return "told" if _is_message(error) else "silent"


def _float64(likelihood: str) -> Callable[[int], Outcome]:
    """Probabilities from chains in float64, of a model that stays as it was."""

    def case(seed: int) -> Outcome:
        fit = _fit(seed, likelihood, "float64")
        before = {name: value.clone() for name, value in fit.model.state_dict().items()}
        p = _edges(fit, seed)
        kept = all(torch.equal(value, before[name]) for name, value in fit.model.state_dict().items())
        sound = (
            np.isfinite(p).all() and p.min() >= 0 and p.max() <= 1 and np.array_equal(p, _edges(fit, seed))
        )
        return "right" if kept and sound else "silent"

    return case


def _together(jobs: Mapping[str, Callable[[], np.ndarray]]) -> Answer:
    """Answers of jobs that begin at once, each in its thread; an error is no answer."""
    ready, found = threading.Barrier(len(jobs)), {}

    def run(name: str, job: Callable[[], np.ndarray]) -> None:
        ready.wait(30)
        with contextlib.suppress(Exception):
            found[name] = job()

    threads = [threading.Thread(target=run, args=item) for item in jobs.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def _two_posteriors(seed: int) -> Outcome:
    fits = [_fit(seed, likelihood) for likelihood in ("bernoulli", _LIKELIHOODS[seed % 5])]
    jobs = {f"edges {i}": partial(_edges, fit, seed + i) for i, fit in enumerate(fits)}
    return _compared({name: job() for name, job in jobs.items()}, _together(jobs))


def _transform_beside_fit(seed: int) -> Outcome:
    likelihood = _LIKELIHOODS[seed % 5]
    fit, x = _fit(seed, likelihood), _table(likelihood, seed + 1)
    jobs = {
        "transform": lambda: fit.transform(x),
        "predict": lambda: fit.predict(x),
        "log_likelihood": lambda: fit.log_likelihood(x),
        "fit": lambda: _fit(seed + 1, likelihood).weights,
    }
    return _compared({name: job() for name, job in jobs.items()}, _together(jobs))


@contextlib.contextmanager
def _dtype(kind: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(kind)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextlib.contextmanager
def _deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def _under(setting: Callable[[], Any]) -> Callable[[int], Outcome]:
    """The same answer under a setting of the caller's, the model made under it too."""

    def case(seed: int) -> Outcome:
        expected = _answer(seed)
        with setting():
            found = _answer(seed)
        return _compared(expected, found)

    return case


def _filters(seed: int) -> Outcome:
    """Filters of warnings after a fit, its edges and their table, in two threads."""
    fit = _fit(seed, "bernoulli")
    before = list(warnings.filters)
    _together({f"edges {i}": partial(_edges, fit, seed + i) for i in range(2)})
    ps.summary(fit.edge_posterior("score", num_draws=5))
    return "right" if list(warnings.filters) == before else "silent"


KINDS: dict[str, Callable[[int], Outcome]] = {
    **{f"float64, {likelihood}": _float64(likelihood) for likelihood in _LIKELIHOODS},
    "threads, two edge posteriors": _two_posteriors,
    "threads, transform beside fit": _transform_beside_fit,
    "no_grad": _under(torch.no_grad),
    "inference_mode": _under(torch.inference_mode),
    "errstate": _under(lambda: np.errstate(all="raise")),
    "default dtype": _under(lambda: _dtype(torch.float64)),
    "deterministic algorithms": _under(_deterministic),
    "autocast": _under(lambda: torch.autocast("cpu", dtype=torch.bfloat16)),
    "filters of warnings": _filters,
}
"""A function of a seed for each kind of fault."""


def run_kind(kind: str, seeds: Iterable[int]) -> dict[Outcome, int]:
    """How often a kind of fault was silent, told and right.

    Parameters
    ----------
    kind : str
        One of `KINDS`.
    seeds : iterable of int
    """
    case = KINDS[kind]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # tiny fits have much to say
        count = Counter(_judged(partial(case, seed)) for seed in seeds)
    return {outcome: count[outcome] for outcome in ("silent", "told", "right")}
