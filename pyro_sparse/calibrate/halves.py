r"""Do edge probabilities hold on this table when more rows come? Halves of the rows beside all of them.

What is expected of the probability of an edge, once more rows have come, is the probability that it has now:

.. math:: E[P(\gamma \mid x_1, \dots, x_N) \mid x_1, \dots, x_{N/2}] = P(\gamma \mid x_1, \dots, x_{N/2})

So no truth is wanted: where half of the rows are sure of edges that all rows do not have, a model that is
unlike the table (its noise, its number of factors, its zeros) has made the probabilities too sure. Of the
edges that a half calls present, `claimed` are expected to be false by its own probabilities, and `lost` are
by those of all rows. Their ratio has mean 1 where the model holds, and so is 20 or more once in twenty tables
at most, however edges depend on each other (an e-value; Vovk and Wang 2021, Annals of Statistics 49(3)). The
same is asked of edges that a half calls absent.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .._utils.checks import check_whole
from .._utils.quiet import ignored
from .._utils.wording import listed
from ..data.columns import as_frame
from ..findings.finding import Finding
from ..graphs.alignment import match_columns, similarity
from ..posterior import arviz as _arviz
from ..posterior.edge_table import check_is_of_table, compared_runs, holds_scores
from ..posterior.later_findings import with_findings
from ..programs.data import Data

if TYPE_CHECKING:
    from .._utils.types import ArvizData, TableLike
    from ..models.base import FactorModel
    from ..programs.program import Program

__all__ = ["Halves", "halves"]

Array = NDArray[np.float64]

_AGAINST = 20.0  # an e-value that the probabilities have once in twenty tables at most where they hold
_LEAST_LOST = 1.0  # edges: less than a whole one is no reason to doubt others
_HALF_LOST = 0.5  # of an edge, or of a factor's edges, from which it is named
_NAMED = 3  # edges in the message
_FEWEST_ROWS = 40  # half of which is hardly a table
_OF_ROWS = ("mask", "exposure", "covariates", "groups", "sample_weight")


@dataclass(frozen=True, eq=False)
class Halves:
    """Edges of halves of the rows beside those of all; `print` it for a verdict.

    Attributes
    ----------
    edges : DataFrame
        A row for each edge of each half: `half`, `feature`, `factor` (of all rows; the half's are matched to
        these), `probability` and `verdict` of the half, and `of_all`, the probability by all rows.
    congruence : DataFrame
        Of each factor (row) in each half (column): of its mean weights there and by all rows.
    n_present, claimed, lost : ndarray (half,)
        Edges that the half calls present; how many of them are expected to be false by its probabilities,
        and by those of all rows.
    n_absent, claimed_absent, gained : ndarray (half,)
        Edges that it calls absent; how many of them are expected to be there.
    e_present, e_absent : float
        Mean over the halves of `lost / claimed` and of `gained / claimed_absent`.
    findings : list of Finding
        A doubt, if one of these is 20 or more and a whole edge has changed.
    idata : InferenceData or DataTree
        The edge posterior of all rows with these findings.
    """

    edges: pd.DataFrame
    congruence: pd.DataFrame
    n_present: NDArray[np.intp]
    claimed: Array
    lost: Array
    n_absent: NDArray[np.intp]
    claimed_absent: Array
    gained: Array
    e_present: float
    e_absent: float
    findings: list[Finding]
    idata: ArvizData

    @property
    def holds(self) -> bool:
        """Whether nothing speaks against the probabilities."""
        return not self.findings

    def __str__(self) -> str:
        n = len(self.claimed)
        present = (
            f"{n} halves of the rows call {int(self.n_present.sum())} edges present, of which "
            f"{self.claimed.sum():.2g} are expected to be false; by all rows {self.lost.sum():.2g} are "
            f"(e-value {self.e_present:.2g})."
        )
        absent = (
            f"They call {int(self.n_absent.sum())} absent, of which {self.claimed_absent.sum():.2g} are "
            f"expected to be there; by all rows {self.gained.sum():.2g} are (e-value {self.e_absent:.2g})."
        )
        if not self.n_present.sum() and not self.n_absent.sum():
            return "Half of the rows decide no edge, so that nothing can be compared."
        verdict = [str(finding) for finding in self.findings] or [
            "Nothing here speaks against the probabilities"
        ]
        return " ".join([present, absent, *(f"{text}." for text in verdict)])


def halves(
    model: FactorModel | Program,
    X: TableLike | Data,
    idata: ArvizData,
    *,
    splits: int = 1,
    edges: Mapping[str, Any] | None = None,
    seed: int = 0,
    **settings: Any,
) -> Halves:
    """Fit halves of the rows and compare their edge probabilities with those of all rows.

    Parameters
    ----------
    model : SparseDecoder or Program
        As it was given to `pyro_sparse.fit`; copies of it are trained.
    X : array_like (row, feature), DataFrame, sparse matrix, AnnData or Data
        The table of that fit.
    idata : InferenceData or DataTree
        Edge posterior of that fit, by Markov chains. It stays as it is.
    splits : int
        How often the rows are divided at random. Each takes two fits and their chains: as long as those of
        all rows, where time is in proportion to rows, and up to twice as long.
    edges : mapping, optional
        Options of `edge_posterior` with which `idata` was made, such as ``{"sweeps": 4000}``. What an edge
        means (`edge`) is what it means in `idata`.
    seed : int
        Of the division, the fits and the chains.
    **settings
        Of `pyro_sparse.fit`, as for all rows; what has a value for each row is divided, too.

    Returns
    -------
    Halves

    Raises
    ------
    TypeError
        `idata` is not of a table, or X cannot be divided by rows.
    ValueError
        `idata` holds scores, is of large loadings (`salient_edges`) or of other columns than X; `edges` ask
        for edges of another meaning; X has fewer than 40 rows; a `checkpoint`.
    RuntimeError
        A half cannot be fitted; the message says why.

    Notes
    -----
    Probabilities of a fit are given its number of factors. A half that keeps another number has edges that
    all rows do not have, and these count as lost.

    A half that finds nothing wrong proves nothing: where all rows and both halves have the same wrong axes
    they agree. Edges that a doubt leaves open are not counted, for nothing is said of them.

    Examples
    --------
    >>> import pyro_sparse as ps
    >>> table = ps.datasets.holzinger().x
    >>> model = ps.models.SparseDecoder(n_factors=3, decoder="linear")
    >>> short = {"restarts": 1, "steps": 50, "progress": False}
    >>> chains = {"sweeps": 60, "progress": False}
    >>> idata = ps.fit(model, table, **short).edge_posterior(edge="practical", **chains)
    >>> check = ps.calibrate.halves(model, table, idata, edges=chains, **short)
    >>> check.holds, check.congruence.shape
    (True, (3, 2))
    """
    check_whole(1, splits=splits)
    check_is_of_table(idata, "halves are of rows of a table")
    if holds_scores(idata) or compared_runs(idata) != "chain":
        raise ValueError("idata: holds no probabilities of Markov chains; want edge_posterior() by chains")
    of_chains = _as_in(idata, dict(edges or {}))
    if settings.get("checkpoint") is not None:
        raise ValueError("checkpoint: is of the fit of all rows, and halves are other fits; leave it out")
    X = as_frame(X)
    n_rows = _rows_of(X)
    whole = _Answer.of(idata)
    rng = np.random.default_rng([seed, 2])
    answers = []
    for _ in range(splits):
        order = rng.permutation(n_rows)
        for index in (np.sort(order[: n_rows // 2]), np.sort(order[n_rows // 2 :])):
            answer = _fitted(model, X, index, n_rows, of_chains, seed, settings)
            if answer.features != whole.features or answer.weight.shape != whole.weight.shape:
                raise ValueError(
                    f"idata: is of {len(whole.features)} features and {whole.weight.shape[1]} factors, and "
                    f"model and X have {len(answer.features)} and {answer.weight.shape[1]}, or other names; "
                    "want the edge posterior of this model on this table"
                )
            answers.append(answer.matched_to(whole))
    return _compared(idata, whole, answers)


def _as_in(idata: ArvizData, edges: dict[str, Any]) -> dict[str, Any]:
    """Options of the chains of halves, whose edges are to mean what those of all rows do."""
    if "salient_loading" in idata.attrs:
        size = float(idata.attrs["salient_loading"])
        raise ValueError(
            f"idata: is of loadings of at least {size:g}; want that from edge_posterior() itself"
        )
    means = str(idata.attrs.get("edge_means", ""))
    if not means:
        return edges
    if edges.get("edge", means) != means:
        raise ValueError(f"edges: ask for edge={edges['edge']!r}, idata is of {means!r}; leave edge out")
    return {**edges, "edge": means}


@dataclass(frozen=True, eq=False)
class _Answer:
    """What is compared of an edge posterior: probabilities, verdicts and mean weights (feature, factor)."""

    features: list[str]
    factors: list[str]
    probability: Array
    verdict: NDArray[np.str_]
    weight: Array
    congruence: Array
    signed: bool
    n_draws: int

    @classmethod
    def of(cls, idata: ArvizData) -> _Answer:
        from ..posterior.tables import summary

        group, dims = _arviz.get_group(idata, "edge_posterior"), ("feature", "factor")
        features, factors = ([str(name) for name in group[dim].to_numpy()] for dim in dims)
        verdict = summary(idata).pivot(index="feature", columns="factor", values="verdict")
        draws = _arviz.get_group(idata, "posterior").sizes
        return cls(
            features,
            factors,
            group["probability"].transpose(*dims).to_numpy(),
            verdict.reindex(index=features, columns=factors).to_numpy().astype(str),
            group["weight"].transpose(*dims).to_numpy(),
            np.ones(len(factors)),
            str(idata.attrs.get("decoder", "linear")) != "mlp",
            draws["chain"] * draws["draw"],
        )

    def matched_to(self, whole: _Answer) -> _Answer:
        """The same with its factors in the order of `whole`."""
        a, b = (x.weight if whole.signed else np.abs(x.weight) for x in (whole, self))
        alike = similarity(a, b)
        order = match_columns(alike)[0]
        return replace(
            self,
            factors=whole.factors,
            probability=self.probability[:, order],
            verdict=self.verdict[:, order],
            weight=self.weight[:, order],
            congruence=np.abs(alike[np.arange(len(order)), order]),
        )


def _fitted(
    model: FactorModel | Program,
    X: TableLike | Data,
    index: NDArray[np.intp],
    n_rows: int,
    edges: dict[str, Any],
    seed: int,
    settings: dict[str, Any],
) -> _Answer:
    """Edges by some of the rows."""
    from ..inference.fit import fit
    from ..inference.training.interrupt import whole

    names = {*_OF_ROWS, *getattr(getattr(model, "likelihood", None), "per_row_inputs", ())}
    of_rows = {name: _divided(value, index, n_rows) for name, value in settings.items() if name in names}
    given: dict[str, Any] = {"seed": seed, **settings, **of_rows}
    try:
        with ignored(category=RuntimeWarning):  # doubts of a half are read from its verdicts
            result = whole(fit, model, _divided(X, index, n_rows), **given)
            idata = result.edge_posterior(**{"seed": seed, **edges})
    except (ValueError, TypeError) as error:
        raise RuntimeError(f"X: half of its rows, {len(index)}, cannot be fitted: {error}") from error
    if holds_scores(idata):
        raise RuntimeError(
            f"X: half of its rows, {len(index)}, has scores and no probabilities: {idata.attrs['note']}"
        )
    if int(idata.attrs.get("interrupted", 0)):
        raise KeyboardInterrupt("interrupted during the chains of half of the rows")
    return _Answer.of(idata)


def _rows_of(X: TableLike | Data) -> int:
    """How many rows there are to divide."""
    if isinstance(X, Mapping | str | os.PathLike):
        raise TypeError(
            f"X: got a {type(X).__name__}, whose rows cannot be divided here; want one table in memory "
            "(`join_views` makes one of several)"
        )
    shape: tuple[int, ...] = X.x.shape if isinstance(X, Data) else getattr(X, "shape", ()) or np.shape(X)
    n_rows = int(shape[0])
    if n_rows < _FEWEST_ROWS:
        raise ValueError(f"X: has {n_rows} rows, wanted {_FEWEST_ROWS} at least, {_FEWEST_ROWS // 2} a half")
    return n_rows


def _divided(value: Any, index: NDArray[np.intp], n_rows: int) -> Any:
    """What belongs to some of the rows; names of columns, and what is no value of each row, stay."""
    if isinstance(value, Data):
        return value.at(index)
    if isinstance(value, Mapping):
        return {name: _divided(values, index, n_rows) for name, values in value.items()}
    if hasattr(value, "iloc"):
        return value.iloc[index]
    if hasattr(value, "obs_names"):  # AnnData, whose parts are views of it
        return value[index].copy()
    if isinstance(value, list | tuple) and len(value) == n_rows:
        return np.asarray(value)[index]
    shape: tuple[int, ...] = getattr(value, "shape", ())
    return value[index] if len(shape) and shape[0] == n_rows else value


def _compared(idata: ArvizData, whole: _Answer, answers: list[_Answer]) -> Halves:
    """Claims of the halves beside what all rows say of them."""
    present = np.stack([answer.verdict == "present" for answer in answers])
    absent = np.stack([answer.verdict == "absent" for answer in answers])
    p = np.stack([answer.probability for answer in answers])
    # The chance that a chain of so many draws can tell from none.
    least = np.array([1 / answer.n_draws for answer in answers])[:, None, None]
    claimed = np.where(present, np.maximum(1 - p, least), 0.0).sum((1, 2))
    lost = np.where(present, 1 - whole.probability, 0.0)
    claimed_absent = np.where(absent, np.maximum(p, least), 0.0).sum((1, 2))
    gained = np.where(absent, whole.probability, 0.0)
    e_present, e_absent = (
        float(np.mean(np.divide(now.sum((1, 2)), said, out=np.ones(len(said)), where=said > 0)))
        for now, said in ((lost, claimed), (gained, claimed_absent))
    )
    findings = []
    if e_present >= _AGAINST and lost.sum() >= _LEAST_LOST:
        findings.append(_lost_finding(whole, lost, int(present.sum()), float(claimed.sum())))
    if e_absent >= _AGAINST and gained.sum() >= _LEAST_LOST:
        findings.append(_gained_finding(whole, gained, int(absent.sum()), float(claimed_absent.sum())))
    numbers = range(1, len(answers) + 1)
    return Halves(
        edges=pd.concat(
            [_as_table(whole, answer, number) for number, answer in zip(numbers, answers, strict=True)]
        ),
        congruence=pd.DataFrame(
            {number: answer.congruence for number, answer in zip(numbers, answers, strict=True)},
            index=pd.Index(whole.factors, name="factor"),
        ).rename_axis(columns="half"),
        n_present=present.sum((1, 2)),
        claimed=claimed,
        lost=lost.sum((1, 2)),
        n_absent=absent.sum((1, 2)),
        claimed_absent=claimed_absent,
        gained=gained.sum((1, 2)),
        e_present=e_present,
        e_absent=e_absent,
        findings=findings,
        idata=with_findings(idata, findings),
    )


def _lost_finding(whole: _Answer, lost: Array, n: int, claimed: float) -> Finding:
    """The doubt that edges which halves are sure of are not there by all rows."""
    of_edges = lost.max(0)  # in the half that lost most of it
    factors = [whole.factors[k] for k in np.flatnonzero(lost.sum(1).max(0) >= _HALF_LOST)]
    # Where a factor's axis is another, an edge that one column loses another one gains.
    features = np.flatnonzero((of_edges >= _HALF_LOST).any(1))
    named = [
        f"{whole.features[j]} on {whole.factors[k]}"
        for j, k in sorted(np.argwhere(of_edges >= _HALF_LOST).tolist(), key=lambda e: -of_edges[e[0], e[1]])
    ]
    some = f", such as {listed(named[:_NAMED])}" if named else ""
    dropped = float(lost[:, :, ~whole.weight.any(0)].sum())
    of_dropped = f" ({dropped:.2g} of them of factors that all rows do not have)" if dropped >= 0.5 else ""
    message = (
        f"Halves of the rows are surer of edges than all rows bear out: of {n} that they call present "
        f"{claimed:.2g} are expected to be false, and by all rows {lost.sum():.2g} are{some}{of_dropped}; "
        "the model is unlike the table, or its number of factors is not settled, and its probabilities are "
        "too sure"
    )
    edges = tuple((whole.features[j], name) for j in features for name in whole.factors)
    return Finding(
        "halves", message, _REMEDY, "doubt", "chains", tuple(factors), edges, size=float(lost.sum())
    )


def _gained_finding(whole: _Answer, gained: Array, n: int, claimed: float) -> Finding:
    """The doubt that edges which halves rule out are there by all rows."""
    new = np.argwhere(gained.max(0) >= _HALF_LOST)
    named = [f"{whole.features[j]} on {whole.factors[k]}" for j, k in new]
    some = f", such as {listed(named[:_NAMED])}" if named else ""
    message = (
        f"Halves of the rows rule out edges that all rows have: of {n} that they call absent {claimed:.2g} "
        f"are expected to be there, and by all rows {gained.sum():.2g} are{some}; the model is unlike the "
        "table"
    )
    edges = tuple((whole.features[j], whole.factors[k]) for j, k in new)
    return Finding("halves", message, _REMEDY, "doubt", "chains", edges=edges, size=float(gained.sum()))


_REMEDY = (
    "give each column the likelihood that it has, look at the findings on columns and rows, offer more "
    "factors, and report what halves and all rows agree on"
)


def _as_table(whole: _Answer, answer: _Answer, number: int) -> pd.DataFrame:
    """Edges of a half as a table."""
    shape = whole.probability.shape
    return pd.DataFrame(
        {
            "half": number,
            "feature": np.repeat(whole.features, shape[1]),
            "factor": np.tile(whole.factors, shape[0]),
            "probability": answer.probability.ravel(),
            "verdict": answer.verdict.ravel(),
            "of_all": whole.probability.ravel(),
        }
    )
