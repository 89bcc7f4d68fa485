r"""Sequences whose variables are measured themselves: which variable, or action, drives which, and when.

.. math:: x_{t,i} = \sum_{k: \gamma_{ik} = 1} \beta_{ik} f_k(x_{t-1}, \ldots, x_{t-L}, a_t)
          + \sigma_i \varepsilon_{t,i}

The terms f are lines and curves of single candidates and products of two (`inference/observed/terms.py`).
There is no mixing, no latent space and nothing to train: coefficients and noise are integrated out, and the
sets of terms are sampled.
"""

from __future__ import annotations

from collections.abc import Iterable

from .._utils.checks import check_whole
from .._utils.recorded import Recorded

__all__ = ["ObservedTransition"]


class ObservedTransition(Recorded):
    r"""Variables driven by their own past, by each other's, and by actions, without a mixing.

    Parameters
    ----------
    lags : int or "auto"
        Steps back that may drive a variable; "auto" takes the furthest one, up to `max_lags`, at which some
        edge is probable.
    max_lags : int
        Of "auto".
    curves : bool
        Whether a parent may act otherwise than by a line.
    products : bool
        Whether two parents may act by their product.
    forbidden : iterable of (target, source), optional
        Names of variables, or of a variable and an action: edges that cannot be there, at any lag.
    power : float
        Of the likelihood, in (0, 1]. Below 1 every edge needs more evidence, as where noise is far from
        independent between steps.

    Raises
    ------
    ValueError, TypeError
        A number out of range, or pairs that are none.

    See Also
    --------
    LatentTransition : where the variables that drive each other are behind those that were measured.

    Notes
    -----
    Edges are of Granger's kind: the past of a source helps to predict its target, given the past of all other
    variables. A common cause that was not measured, or an effect within a step, can look like one.

    Examples
    --------
    >>> ObservedTransition(lags=2, products=False)
    ObservedTransition(lags=2, curves=True, products=False)
    """

    def __init__(
        self,
        lags: int | str = "auto",
        max_lags: int = 3,
        curves: bool = True,
        products: bool = True,
        forbidden: Iterable[tuple[str, str]] | None = None,
        power: float = 1.0,
    ):
        if lags != "auto":
            if isinstance(lags, str):
                raise ValueError(f'lags: got {lags!r}, wanted a whole number of at least 1, or "auto"')
            check_whole(1, lags=lags)
        check_whole(1, max_lags=max_lags)
        for name, value in (("curves", curves), ("products", products)):
            if not isinstance(value, bool):
                raise TypeError(f"{name}: got {value!r}, wanted True or False")
        if isinstance(power, bool) or not isinstance(power, int | float) or not 0 < power <= 1:
            raise ValueError(f"power: got {power!r}, wanted a number above 0 and at most 1")
        pairs = [] if forbidden is None else [forbidden] if isinstance(forbidden, str) else list(forbidden)
        for pair in pairs:
            if isinstance(pair, str) or len(pair) != 2:
                raise ValueError(f"forbidden: got {pair!r}, wanted pairs of names (target, source)")
        self.lags = lags if isinstance(lags, str) else int(lags)
        self.max_lags, self.curves, self.products = int(max_lags), curves, products
        self.forbidden = [(str(target), str(source)) for target, source in pairs]
        self.power = float(power)

    def __repr__(self) -> str:
        return f"ObservedTransition(lags={self.lags!r}, curves={self.curves}, products={self.products})"
