r"""Do edges called .8 exist eight times in ten? Everything that probabilities and truths say about it.

.. math:: E[\gamma \mid p] = p

for a calibrated forecast. `reliability` measures the departure (Brier score and its parts, log score, ECE
beside the ECE of truths drawn from p, false discoveries), draws the curve with the range that a calibrated
forecast would show, and says in words what is wrong: too sure, not sure enough, too many edges, too few.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.stats import binom, norm, t

from .._utils.checks import check_whole
from ._check import Array, bin_of, groups, pair
from .discoveries import RealisedFDR, realised_fdr
from .scores import (
    BrierDecomposition,
    brier_decomposition,
    cluster_ece,
    cluster_z,
    ece,
    ece_when_calibrated,
    log_score,
    mean_z,
    spiegelhalter_z,
)

__all__ = ["Reliability", "reliability"]

_FEW = 60  # informative data sets below which clustered tests alone reject calibrated forecasts too often


@dataclass(frozen=True, eq=False)
class Reliability:
    r"""How well edge probabilities agree with the truth; `print` it for a verdict.

    Attributes
    ----------
    n_edges, n_data_sets : int
        How many edges, in how many data sets (0: not said).
    mean_probability, frequency : float
        Mean of the probabilities, and share of edges that exist.
    brier : float
        Mean of (p - truth)^2.
    decomposition : BrierDecomposition
        Its parts: `reliability - resolution + uncertainty + within_bin`.
    log_score : float
        Mean of -log of the probability given to what is so, in nats per edge; infinite if a certain claim is
        wrong.
    ece : float
        Expected calibration error over bins of equal width.
    ece_null : float
        Mean ECE of truths drawn from the probabilities themselves at this sample size: the floor.
    ece_upper : float
        Quantile `prob` of the same.
    ece_p : float
        Share of the same at or above `ece`, (1 + k) / (1 + simulations).
    spiegelhalter_z : float
        Positive: too sure; negative: not sure enough. Takes edges as independent given their probabilities.
    mean_z : float
        z of the mean of truth - p, edges taken as independent; negative: too many edges are claimed.
    n_informative : float
        How many data sets with one and the same variance say as much of the mean,
        :math:`(\sum_d v_d)^2 / \sum_d v_d^2` with :math:`v_d = \sum_{e \in d} p_e (1 - p_e)`;
        0 without `group`.
    cluster_ece_p : float
        `ece_p` with whole data sets as the unit (`cluster_ece`); NaN for fewer than two.
    cluster_z : float
        z of the mean of truth - p with whole data sets as the unit; negative: too many edges are claimed.
    cluster_spiegelhalter_z : float
        Spiegelhalter's z with whole data sets as the unit.
    fdr : float
        Nominal rate at which edges were named.
    realised : RealisedFDR or None
        What came of it; None without `group`.
    curve : DataFrame
        A row for each bin that holds an edge: `low`, `high` (its ends), `mean_probability`, `frequency`,
        `count`, `band_low`, `band_high` (between which the frequency of a calibrated forecast lies with
        probability `prob`, bin by bin: central binomial interval).
    probability : ndarray of shape (edge,)
        What was judged.
    prob : float
        Probability of `ece_upper`, of the bands, and that a calibrated forecast `passes`.
    """

    n_edges: int
    n_data_sets: int
    mean_probability: float
    frequency: float
    brier: float
    decomposition: BrierDecomposition
    log_score: float
    ece: float
    ece_null: float
    ece_upper: float
    ece_p: float
    spiegelhalter_z: float
    mean_z: float
    n_informative: float
    cluster_ece_p: float
    cluster_z: float
    cluster_spiegelhalter_z: float
    fdr: float
    realised: RealisedFDR | None
    curve: pd.DataFrame
    probability: Array
    prob: float

    @property
    def p_values(self) -> dict[str, float]:
        """Of the tests behind `passes`: "ece", "sharpness" (Spiegelhalter) and "mean".

        By data set where there are several. Where few of them are informative, the larger of that p-value and
        of the one for independent edges.
        """
        alone = {"ece": self.ece_p}
        for name, z_score in (("sharpness", self.spiegelhalter_z), ("mean", self.mean_z)):
            alone[name] = float(2 * norm.sf(abs(z_score)))
        if not self._by_data_set:
            return alone
        z = np.abs([self.cluster_spiegelhalter_z, self.cluster_z])
        # Student's t knows no ties: where all data sets deviate alike, by turning each round (`cluster_z`).
        sharpness, mean = np.where(
            np.isinf(z), 2.0 ** (1 - self.n_data_sets), 2 * t.sf(z, self.n_data_sets - 1)
        )
        clustered = {"ece": self.cluster_ece_p, "sharpness": float(sharpness), "mean": float(mean)}
        return {name: max(p, alone[name]) for name, p in clustered.items()} if self._few else clustered

    @property
    def _by_data_set(self) -> bool:
        return self.n_data_sets > 1

    @property
    def _few(self) -> bool:
        """Whether sums over data sets are too few, or too unlike each other, for tests that know no more."""
        return self._by_data_set and self.n_informative < _FEW

    @property
    def passes(self) -> bool:
        """Whether no test objects, each at level (1 - prob) / number of tests."""
        return min(self.p_values.values()) * len(self.p_values) > 1 - self.prob

    @property
    def verdict(self) -> str:
        """In a few words: which way the probabilities err, if they do."""
        if self.passes:
            return "no sign of miscalibration"
        level = (1 - self.prob) / len(self.p_values)
        small = [name for name, p in self.p_values.items() if p <= level]
        findings = []
        if "sharpness" in small:
            z = self.cluster_spiegelhalter_z if self._by_data_set else self.spiegelhalter_z
            findings.append("too sure" if z > 0 else "not sure enough")
        if "mean" in small:
            z = self.cluster_z if self._by_data_set else self.mean_z
            findings.append("claims too many edges" if z < 0 else "claims too few edges")
        return ", ".join(findings) or "says one thing, and another is so"

    def __str__(self) -> str:
        sets = f" in {self.n_data_sets} data sets" if self.n_data_sets else ""
        d = self.decomposition
        lines = [f"{self.n_edges} edge probabilities{sets}: {self.verdict}", *self._worst()]
        lines += [
            f"  ECE {self.ece:.4f}; if calibrated {self.ece_null:.4f} on average, {self.ece_upper:.4f} at "
            f"{self.prob:.0%} (p = {self.ece_p:.2g})",
            f"  Brier {self.brier:.4f} = reliability {d.reliability:.4f} - resolution {d.resolution:.4f} + "
            f"uncertainty {d.uncertainty:.4f} + within bins {d.within_bin:.4f}",
            f"  log score {self.log_score:.4f} nats; mean probability {self.mean_probability:.3f}, frequency "
            f"{self.frequency:.3f}",
            f"  Spiegelhalter's z {self.spiegelhalter_z:.1f}, that of mean(truth - p) {self.mean_z:.1f}",
        ]
        if self._by_data_set:
            lines[-1] += (
                f"; by data set {self.cluster_spiegelhalter_z:.1f} and {self.cluster_z:.1f}, "
                f"ECE p = {self.cluster_ece_p:.2g}"
            )
        if self._few:
            lines.append(
                f"  as informative as {self.n_informative:.0f} data sets: a test by data set counts only "
                "where that of independent edges objects too"
            )
        if self.realised is not None:
            r = self.realised
            lines.append(
                f"  named at a rate of {self.fdr:.0%}: {r.fdr:.1%} false (se {r.fdr_se:.1%}; the "
                f"probabilities expect {r.claimed:.1%}), power {r.power:.1%}"
            )
        return "\n".join(lines)

    __repr__ = __str__

    def _worst(self) -> list[str]:
        """The bins that stray farthest out of their bands, weighed by what they hold."""
        c = self.curve
        out = c[(c["frequency"] < c["band_low"]) | (c["frequency"] > c["band_high"])]
        if self.passes or out.empty:
            return []
        gap = (out["mean_probability"] - out["frequency"]).abs() * out["count"]
        lines = []
        for _, row in out.loc[gap.nlargest(3).index].sort_values("low").iterrows():
            sure = abs(row["mean_probability"] - 0.5) > abs(row["frequency"] - 0.5)
            same_side = (row["mean_probability"] - 0.5) * (row["frequency"] - 0.5) > 0
            how = ("too sure" if sure else "not sure enough") if same_side else "on the wrong side of .5"
            lines.append(
                f"  says {row['mean_probability']:.2f}, is right {row['frequency']:.2f} of the time: {how} "
                f"({row['count']:.0f} edges; if calibrated {row['band_low']:.2f} to {row['band_high']:.2f})"
            )
        return lines

    def to_series(self) -> pd.Series:
        """Every single number, by name: a row of a table that compares methods."""
        numbers: dict[str, float] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, BrierDecomposition):
                numbers |= value._asdict()
            elif isinstance(value, RealisedFDR):
                numbers |= {"realised_fdr": value.fdr, "claimed_fdr": value.claimed, "power": value.power}
            elif isinstance(value, int | float):
                numbers[field.name] = value
        return pd.Series(numbers)


def reliability(
    probability: ArrayLike,
    truth: ArrayLike,
    *,
    group: ArrayLike | None = None,
    bins: int = 15,
    fdr: float = 0.1,
    prob: float = 0.95,
    simulations: int = 500,
    seed: int = 0,
) -> Reliability:
    r"""Compare edge probabilities with the truth, of one or of many data sets.

    Parameters
    ----------
    probability : array_like of any shape
        Edge probabilities in [0, 1], from any method.
    truth : array_like of the same shape
        1 or True where there is an edge, else 0. Match factors first.
    group : array_like, optional
        Data set of each edge: labels of the same shape, or of the leading axes of it; probabilities of shape
        (data set, feature, factor) take ``np.arange(len(probability))``. Edges of one data set may deviate
        together, so that whole data sets are the unit of the tests and of false discoveries.
    bins : int
        Bins of equal width for the ECE, the Brier score's parts and the curve.
    fdr : float
        Nominal rate at which edges are named in each data set, by `pyro_sparse.graphs.bayesian_fdr`.
    prob : float
        Probability, in (0, 1), of the bands and quantiles, and that a calibrated forecast `passes`.
    simulations : int
        How many sets of truths are drawn from the probabilities to learn the floor of the ECE.
    seed : int
        Of those draws.

    Returns
    -------
    Reliability

    Raises
    ------
    ValueError
        If shapes differ, there is no edge, a value is out of range, or the labels do not fit.

    Notes
    -----
    `ece_null`, `ece_upper`, `ece_p`, Spiegelhalter's z, `mean_z` and the bands take edges as independent
    given their probabilities; edges of one data set seldom are, and exact posteriors then fail too often.
    With `group`, `passes` rests on the clustered tests. Where most probabilities are near 0 or 1 few data
    sets deviate at all, and clustered tests of few reject too often: below 60 informative data sets
    (`n_informative`) a test objects only if the one for independent edges does so too. That costs power
    where edges of a data set deviate against each other. Calibration is an average over the data sets given:
    drawn from another prior, they can pass or fail for that reason alone.

    References
    ----------
    Bröcker and Smith (2007), Increasing the reliability of reliability diagrams, Weather and Forecasting 22
    (the bands); the rest as in `pyro_sparse.calibrate.scores`.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> p = rng.random((50, 8, 3))
    >>> truth = rng.random(p.shape) < p
    >>> reliability(p, truth, group=np.arange(50)).verdict
    'no sign of miscalibration'
    >>> sure = p**2 / (p**2 + (1 - p) ** 2)
    >>> reliability(sure, truth, group=np.arange(50)).verdict
    'too sure'
    """
    p, gamma = pair(probability, truth)
    if not 0 < prob < 1:
        raise ValueError(f"prob: want a probability strictly between 0 and 1, got {prob!r}; 95 % is 0.95")
    if not 0 <= fdr <= 1:
        raise ValueError(f"fdr: want a rate in [0, 1], got {fdr!r}; ten per cent is 0.1")
    check_whole(1, simulations=simulations)
    null = ece_when_calibrated(p, bins=bins, simulations=simulations, seed=seed)
    error = ece(p, gamma, bins)
    z, z_sure, p_sets, sets, informative, realised = np.nan, np.nan, np.nan, 0, 0.0, None
    if group is not None:
        home = groups(group, np.shape(probability))
        sets = int(home.max()) + 1
        varies = np.bincount(home, p * (1 - p))
        informative = float(varies.sum() ** 2 / (varies**2).sum()) if varies.any() else 0.0
        if sets > 1:
            turned = cluster_ece(p, gamma, home, bins=bins, simulations=simulations, seed=seed)
            p_sets = _share_above(turned, error)
        z = cluster_z(gamma - p, home)
        z_sure = cluster_z((gamma - p) * (1 - 2 * p), home)
        realised = realised_fdr(p, gamma, home, fdr=fdr)
    return Reliability(
        n_edges=p.size,
        n_data_sets=sets,
        mean_probability=float(p.mean()),
        frequency=float(gamma.mean()),
        brier=float(np.mean((p - gamma) ** 2)),
        decomposition=brier_decomposition(p, gamma, bins),
        log_score=log_score(p, gamma),
        ece=error,
        ece_null=float(null.mean()),
        ece_upper=float(np.quantile(null, prob)),
        ece_p=_share_above(null, error),
        spiegelhalter_z=spiegelhalter_z(p, gamma),
        mean_z=mean_z(p, gamma),
        n_informative=informative,
        cluster_ece_p=p_sets,
        cluster_z=z,
        cluster_spiegelhalter_z=z_sure,
        fdr=float(fdr),
        realised=realised,
        curve=_curve(p, gamma, bins, prob),
        probability=p,
        prob=float(prob),
    )


def _share_above(null: Array, observed: float) -> float:
    """p-value by simulation; what differs by rounding only is a tie."""
    return float((1 + (null >= observed - 1e-12).sum()) / (1 + len(null)))


def _curve(p: Array, gamma: Array, bins: int, prob: float) -> pd.DataFrame:
    home = bin_of(p, bins)
    count = np.bincount(home, minlength=bins)
    filled = np.flatnonzero(count)
    n = count[filled]
    mean_probability = np.bincount(home, p, minlength=bins)[filled] / n
    # A binomial at the bin's mean varies at least as much as a sum of unequal chances does.
    low, high = (
        binom.ppf(q, n, np.clip(mean_probability, 0, 1)) / n for q in ((1 - prob) / 2, (1 + prob) / 2)
    )
    return pd.DataFrame(
        {
            "low": filled / bins,
            "high": (filled + 1) / bins,
            "mean_probability": mean_probability,
            "frequency": np.bincount(home, gamma, minlength=bins)[filled] / n,
            "count": n,
            "band_low": low,
            "band_high": high,
        }
    )
