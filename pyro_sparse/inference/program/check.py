"""`check`: what a program is to the chains, before it is fitted: sites, kernels, dependences, cost."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from ..._utils.checks import check_whole
from ..._utils.torch_state import undisturbed
from ...programs.data import Data
from .recorded import RecordedDensity
from .sweeps import ProgramChains

if TYPE_CHECKING:
    from ...programs.program import Program

__all__ = ["ProgramCheck", "check"]

_TRIAL = 4  # sweeps, after those that record
_SWEEPS = 800  # of each chain, by default
_REASONS = {
    "exact": "exact: the rest is quadratic in it, so it is drawn from its normal conditional",
    "laplace": "proposals from a Laplace approximation, each accepted or not (Metropolis)",
    "gibbs": "each gate from its conditional",
    "learned": "point estimate: learned by stochastic EM in the fit and the warm-up, and held from then on",
}


@dataclass(frozen=True)
class ProgramCheck:
    """What `check` found out; `print` it.

    Attributes
    ----------
    sites : DataFrame
        A row for each site: `plate`, `declared`, `numbers` of an element, `drawn` (how, and why), `moves`
        (sites whose density it enters).
    together : list of str
        What else chains do: moves of the axes, rows integrated out.
    record_seconds, sweep_seconds : float
        CPU seconds of the recording, and of a sweep of all chains.
    chains : int
    """

    sites: pd.DataFrame
    together: list[str]
    record_seconds: float
    sweep_seconds: float
    chains: int

    def __str__(self) -> str:
        with pd.option_context("display.max_colwidth", None, "display.width", None):
            table = self.sites.to_string()
        lines = [table, *self.together]
        total = self.record_seconds + _SWEEPS * self.sweep_seconds
        lines.append(
            f"Recording {self.record_seconds:.1f} s, a sweep of {self.chains} chains "
            f"{1000 * self.sweep_seconds:.0f} ms: edge_posterior() takes about {total:.0f} CPU seconds."
        )
        return "\n".join(lines)


def check(model: Program, data: Data, *, chains: int = 4, seed: int = 0) -> ProgramCheck:
    """Whether a program can be sampled on some data, how, and what that costs.

    Parameters
    ----------
    model : Program
    data : Data or array_like (row, feature)
    chains : int
    seed : int

    Returns
    -------
    ProgramCheck

    Raises
    ------
    ValueError, TypeError
        The program cannot be sampled; the message says which site is why.

    Examples
    --------
    >>> import numpy as np, torch, pyro, pyro.distributions as dist, pyro_sparse as ps
    >>> def program(d):
    ...     with d.features:
    ...         slab, spike = dist.Normal(0.0, 1.0), dist.Normal(0.0, 0.05)
    ...         W = ps.edges("W", log_odds=-1.0, slab=slab, spike=spike, to=d.factors)
    ...     with d.rows:
    ...         z = ps.factors("z", dist.Normal(torch.zeros(d.n_factors), 1.0))
    ...     with d.rows, d.features:
    ...         pyro.sample("x", dist.Normal(z @ W.mT, 0.5), obs=d.x)
    >>> checked = ps.check(ps.Program(program, n_factors=2), np.random.default_rng(0).normal(size=(30, 4)))
    >>> checked.sites["plate"].to_dict()
    {'W': 'features', 'z': 'rows', 'x': 'rows, features'}
    """
    check_whole(1, chains=chains)
    data = data if isinstance(data, Data) else Data(data)
    with undisturbed(seed):
        began = time.process_time()
        density = RecordedDensity(model, data, chains, seed=seed, record_after=0)
        state = ProgramChains(density, density.start, warm_up=2 * _TRIAL, climbing=0)
        for _ in range(_TRIAL):
            state.sweep()
        recorded = time.process_time()
        for _ in range(_TRIAL):
            state.sweep()
        of_sweep = (time.process_time() - recorded) / _TRIAL
    recording = max(0.0, recorded - began - _TRIAL * of_sweep)
    return ProgramCheck(_sites(density, state), _together(state), recording, of_sweep, chains)


def _sites(density: RecordedDensity, state: ProgramChains) -> pd.DataFrame:
    blocks = {name: block for block in density.blocks.values() for name in block.sites}
    rows = {}
    for name, site in density.layout.sites.items():
        block = blocks.get(name)
        if block is None:
            drawn, moves, numbers = "observed", "", 0
        else:
            drawn = _how(state.samplers[block.name].method, block.size, site.kind)
            moves = ", ".join(sorted(density.blanket(block) - {name}))
            numbers = block.size
        rows[name] = {
            "plate": ", ".join(site.plates) or "none",
            "declared": site.kind,
            "numbers": numbers,
            "drawn": drawn,
            "moves": moves,
        }
    return pd.DataFrame.from_dict(rows, orient="index")


def _how(method: str, size: int, kind: str) -> str:
    if kind == "edges" and method == "exact":
        return "spike-and-slab sweep, exact: the likelihood is quadratic in the weights"
    if method.startswith("surrogate"):
        return "spike-and-slab sweep under a quadratic of the likelihood, accepted or not (Metropolis)"
    if method == "hmc":
        return f"Hamiltonian steps: {size} numbers are too many for a Hessian"
    return _REASONS[method]


def _together(state: ProgramChains) -> list[str]:
    lines = []
    if state.axes.useful:
        on_data = "by priors and likelihood" if state.axes.asks_data else "by priors alone"
        names = ", ".join([*state.axes.scores, *state.axes.loadings])
        lines.append(f"Axes: {names} rotate together, {on_data}; small linear maps of them.")
    elif state.density.layout.has_axes:
        lines.append("Axes: factors stay in the axes of the start (a spike is a point, or they have bounds).")
    if state.collapsed.useful:
        lines.append("Rows are integrated out exactly for Hamiltonian steps of all other sites.")
    return lines
