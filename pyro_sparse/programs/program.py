"""`Program`: a Pyro program with a sparse graph in it, as a model that `fit` takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .._utils.checks import check_whole
from .data import Data

if TYPE_CHECKING:
    from .data import DataView

__all__ = ["Program"]


class Program:
    """A Pyro program of data, written for one chain, as a model.

    It is called with `Data` (or a `DataView`) and runs the program, so that all of Pyro works on it:
    ``Predictive(model, num_samples=9)(data)``, ``pyro.render_model(model, (data,))``, `SVI`, `NUTS`.

    Parameters
    ----------
    program : callable
        Of a `DataView`, by Pyro's primitives and `edges`, `gates`, `factors`, `sample`. It has neither random
        numbers outside of sites nor control flow on sampled values.
    n_factors : int

    Examples
    --------
    Sparse factor analysis, :math:`x_{nj} \\sim N(w_j^\\top z_n, s_j^2)`:

    >>> import torch, pyro, pyro.distributions as dist, pyro_sparse as ps
    >>> def program(d):
    ...     with d.features:
    ...         slab, spike = dist.Normal(0.0, 1.0), dist.Normal(0.0, 0.05)
    ...         W = ps.edges("W", log_odds=-1.0, slab=slab, spike=spike, to=d.factors)
    ...         sd = pyro.sample("sd", dist.LogNormal(-0.5, 0.7))
    ...     with d.rows:
    ...         z = ps.factors("z", dist.Normal(torch.zeros(d.n_factors), 1.0))
    ...     with d.rows, d.features:
    ...         pyro.sample("x", dist.Normal(z @ W.mT, sd).mask(d.seen), obs=d.x)
    >>> model = ps.Program(program, n_factors=2)
    """

    def __init__(self, program: Callable[[DataView], Any], n_factors: int):
        check_whole(1, n_factors=n_factors)
        if not callable(program):
            raise TypeError(f"program: got a {type(program).__name__}, wanted a function of the data")
        self.program, self.n_factors = program, int(n_factors)

    def __repr__(self) -> str:
        name = getattr(self.program, "__name__", type(self.program).__name__)
        return f"Program({name}, n_factors={self.n_factors})"

    def __call__(self, data: Data | DataView) -> Any:
        """Run the program on data."""
        return self.program(data.view(self.n_factors) if isinstance(data, Data) else data)
