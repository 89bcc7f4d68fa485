"""Is a program sound? A test class to inherit: say how to make it and its data, and chains are put to test.

What is recorded is compared with Pyro's own trace, slopes with differences, draws with the data's shape, and
draws of the posterior with truths that the program itself drew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from pyro import poutine

from .._utils.torch_state import default_dtype
from ..calibrate.programs import simulate_tables
from ..calibrate.sbc import sbc
from ..inference.program.layout import PARAMETER
from ..inference.program.recorded import RecordedDensity
from ..programs.parameters import GivenParameters

if TYPE_CHECKING:
    from ..programs.data import Data
    from ..programs.program import Program

__all__ = ["ProgramTestCase"]

_STEP = 1e-5  # of the differences that slopes are compared with
_NEAR = 2e-4  # relative difference of a slope and a central difference, in double precision


class ProgramTestCase:
    """Base class of tests of a program for pytest: inherit, call it ``Test...``, define `make` and `data`.

    Take small data: a dozen columns and a hundred rows are plenty. A check fails with the name of the site.

    Attributes
    ----------
    n_tables : int
        That are drawn from the program for the check of its posterior.
    sweeps, warm_up : int
        Of each of their chains; the first include the second.
    seed : int

    Examples
    --------
    >>> import numpy as np, pyro, pyro.distributions as dist, torch
    >>> import pyro_sparse as ps
    >>> from pyro_sparse.testing import ProgramTestCase
    >>> class TestFactorAnalysis(ProgramTestCase):
    ...     def make(self):
    ...         def program(d):
    ...             with d.features:
    ...                 slab, spike = dist.Normal(0.0, 1.0), dist.Normal(0.0, 0.05)
    ...                 W = ps.edges("W", log_odds=-1.0, slab=slab, spike=spike, to=d.factors)
    ...             with d.rows:
    ...                 z = ps.factors("z", dist.Normal(torch.zeros(d.n_factors), 1.0))
    ...             with d.rows, d.features:
    ...                 pyro.sample("x", dist.Normal(z @ W.mT, 0.5), obs=d.x)
    ...         return ps.Program(program, n_factors=2)
    ...     def data(self):
    ...         return ps.Data(np.zeros((20, 6)))
    >>> TestFactorAnalysis().test_densities_are_those_of_the_program()
    """

    n_tables = 60
    sweeps, warm_up = 1200, 300
    seed = 0

    def make(self) -> Program:
        """The program."""
        raise NotImplementedError(f"{type(self).__name__} must define make(), returning a Program")

    def data(self) -> Data:
        """A small table with what is known of its rows and features; what its cells say does not matter."""
        raise NotImplementedError(f"{type(self).__name__} must define data(), returning Data")

    # What the tests share

    def _density(self, n_chains: int = 2) -> RecordedDensity:
        return RecordedDensity(self.make(), self.data(), n_chains, seed=self.seed)

    # The checks

    def test_rows_and_features_are_independent_of_one_another_given_the_rest(self) -> None:
        """The blocks that chains draw: recording refuses what moves others, and names the sites."""
        density = self._density()
        latent = [site.name for site in density.layout.sites.values() if not site.observed]
        assert sorted(name for block in density.blocks.values() for name in block.sites) == sorted(latent)

    def test_draws_have_the_shape_of_the_table(self) -> None:
        """Tables drawn from the prior, edges with them."""
        data = self.data()
        for table in simulate_tables(self.make(), data, 3, self.seed):
            assert table.x.shape == data.x.shape, f"x: drawn {table.x.shape}, data {data.x.shape}"
            assert table.edge.shape == table.weight.shape == (data.x.shape[-1], self.make().n_factors)
            assert np.isfinite(table.x).all(), "x: a draw from the prior is not finite"

    def test_densities_are_those_of_the_program(self) -> None:
        """Every site's log density as recorded, against a trace of the program by Pyro, at prior draws."""
        density, model, data = self._density(), self.make(), self.data()
        logs, values = density.logs(density.start), density.values(density.start)
        for c in range(2):
            of_chain = {name: value[c] for name, value in values.items()}
            with default_dtype(torch.float64):
                view = data.view(model.n_factors, data.tensors("cpu", torch.float64))
                with GivenParameters():
                    trace = poutine.trace(poutine.condition(model.program, data=of_chain)).get_trace(view)
                trace.compute_log_prob()
            for name, site in density.layout.sites.items():
                if site.kind == PARAMETER:  # without a density
                    continue
                ours, theirs = logs[name][c].sum(), trace.nodes[name]["log_prob"].sum()
                if not site.observed and site.link is not None:
                    numbers = density.start[name][c]
                    theirs = theirs + site.link.log_abs_det_jacobian(numbers, of_chain[name]).sum()
                assert torch.allclose(ours, theirs, rtol=1e-8), f"{name}: recorded {ours:g}, Pyro {theirs:g}"

    def test_slopes_are_those_of_differences(self) -> None:
        """Gradients of every block but gates, against central differences."""
        density = self._density()
        gates = {site.name for site in density.layout.edges if site.kind == "gates"}
        torch.manual_seed(self.seed)
        for block in density.blocks.values():
            if set(block.sites) & gates:
                continue
            q = density.pack(block, density.start)
            way = torch.randn_like(q)
            slope = (density.slope(block, q, density.start)[1] * way).sum((1, 2))
            up, down = (
                density.total(block, q + sign * _STEP * way, density.start).sum(1) for sign in (1, -1)
            )
            apart = (slope - (up - down) / (2 * _STEP)).abs() / (1 + slope.abs())
            assert apart.max() < _NEAR, f"{block.name}: slope and differences are {apart.max():g} apart"

    def test_posterior_draws_rank_as_their_truths_do(self) -> None:
        """Simulation-based calibration with the program as simulator (minutes)."""
        ranked = sbc(
            self.make(), self.data(), n_data_sets=self.n_tables, sweeps=self.sweeps, warm_up=self.warm_up,
            seed=self.seed, prob=0.999, progress=False,
        )  # fmt: skip
        assert ranked.passes, str(ranked)
