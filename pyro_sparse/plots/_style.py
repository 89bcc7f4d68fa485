"""What every picture here shares: lazy matplotlib, colours that work on light and dark, and readable labels.

Names come from the user's table, so they are never parsed as mathematics and long ones are shortened in the
middle.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from types import ModuleType
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..findings.finding import doubted_edges, findings_of
from ..graphs.selection import unresolved
from ..posterior.arviz import get_group
from ..posterior.edge_table import selected_edges
from ..posterior.tables import given_edges

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

    from .._utils.types import ArvizData

__all__ = [
    "Edges",
    "colours",
    "diverging",
    "new_axes",
    "new_figure",
    "offscreen",
    "require_matplotlib",
    "shorten",
    "styled",
    "table_edges",
]

P = ParamSpec("P")
T = TypeVar("T")

_RC = {
    "text.parse_math": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 10,
    "axes.labelsize": 9.5,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "legend.fontsize": 9,
    "legend.frameon": False,
}


def require_matplotlib() -> ModuleType:
    """Import matplotlib, or say how to get it."""
    try:
        import matplotlib
    except ImportError as error:
        raise ImportError(
            'plots need matplotlib, which is not installed; run: pip install "pyro-sparse[plots]"'
        ) from error
    return matplotlib


def styled(function: Callable[P, T]) -> Callable[P, T]:
    """Draw with this package's few settings on top of the user's own."""

    @functools.wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
        with require_matplotlib().rc_context(_RC):
            return function(*args, **kwargs)

    return wrapper


_OFFSCREEN = ContextVar("offscreen", default=False)


@contextmanager
def offscreen() -> Iterator[None]:
    """Make figures that pyplot knows nothing of: no window opens, none is left behind."""
    token = _OFFSCREEN.set(True)
    try:
        yield
    finally:
        _OFFSCREEN.reset(token)


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of that size in inches."""
    if _OFFSCREEN.get():
        from matplotlib.figure import Figure

        return Figure(figsize=(width, height), layout="constrained")
    import matplotlib.pyplot as plt

    return plt.figure(figsize=(width, height), layout="constrained")


def new_axes(ax: Axes | None, width: float, height: float) -> Axes:
    """The axes given, or the only axes of a new figure of that size in inches."""
    return new_figure(width, height).subplots() if ax is None else ax


def _is_dark() -> bool:
    """Whether text is light, hence the background dark; a transparent background says nothing itself."""
    from matplotlib import colors, rcParams

    red, green, blue = colors.to_rgb(rcParams["text.color"])
    # how bright a colour looks (ITU-R BT.601)
    return 0.3 * red + 0.59 * green + 0.11 * blue > 0.5


def colours() -> dict[str, str]:
    """Blue and orange stay apart for every common kind of colour blindness."""
    if _is_dark():
        return {
            "positive": "#f2935c",
            "negative": "#6cb2f0",
            "zero": "#30353d",
            "best": "#f2935c",
            "muted": "#79818d",
            "line": "#4a515c",
            "alert": "#f5c542",
        }
    return {
        "positive": "#c4511b",
        "negative": "#2468ad",
        "zero": "#f1f2f4",
        "best": "#c4511b",
        "muted": "#8b929c",
        "line": "#d3d7dc",
        "alert": "#a16a00",
    }


def diverging() -> Colormap:
    """Blue for negative, orange for positive, near background at zero."""
    from matplotlib.colors import LinearSegmentedColormap

    c = colours()
    return LinearSegmentedColormap.from_list("sign", [c["negative"], c["zero"], c["positive"]])


def shorten(names: Sequence[object], limit: int = 28) -> list[str]:
    """Printable labels of at most `limit` characters, cut in the middle."""

    def shortened(name: object) -> str:
        text = "".join(letter if letter.isprintable() else " " for letter in str(name))
        half = (limit - 1) // 2
        return text if len(text) <= limit else f"{text[: limit - 1 - half]}…{text[len(text) - half :]}"

    return [shortened(name) for name in names]


def table_edges(idata: ArvizData) -> xr.Dataset:
    """The group `edge_posterior` of a table's fit, for pictures that can show no other kind."""
    group = get_group(idata, "edge_posterior")
    other_kinds = {
        "transition": ("a latent transition", "draw them with plot_transition"),
        "tasks": ("tasks", "draw them with plot_edges or plot_graph"),
    }
    kind = idata.attrs.get("kind")
    if kind in other_kinds:
        noun, fix = other_kinds[kind]
        raise TypeError(f"idata: holds the edges of {noun}, this picture is of a table's; {fix}")
    return group


def _task_edges(idata: ArvizData) -> xr.Dataset:
    """Edges of tasks by the names of a table's; `effect` is a latent's share of the squared weights."""
    draws = get_group(idata, "posterior")["weight"].isel(chain=int(idata.attrs["best_restart"]))
    weight = draws.mean("draw").transpose("task", "latent")
    square = weight**2
    effect = square / square.sum("latent").clip(1e-300)
    group = get_group(idata, "edge_posterior").assign(weight=weight, effect=effect)
    return group.rename(task="feature", latent="factor")


class Edges:
    """The numbers of every edge as (feature, factor) arrays, and the order in which to show them.

    Tasks and latents stand for features and factors where the edges are theirs. Factors keep the fit's order.
    Each feature belongs to the factor that explains most of it, sure edges first; within a factor features go
    from the strongest positive to the strongest negative loading.
    """

    def __init__(self, idata: ArvizData, fdr: float) -> None:
        self.of_tasks = getattr(idata, "attrs", {}).get("kind") == "tasks"
        # strengths between dictionaries have no sign
        self.signed = getattr(idata, "attrs", {}).get("weight_unit") != "strength"
        group = _task_edges(idata) if self.of_tasks else table_edges(idata)
        group = group.transpose("chain", "feature", "factor", missing_dims="ignore")
        self.features = [str(name) for name in group["feature"].to_numpy()]
        self.factors = [str(name) for name in group["factor"].to_numpy()]
        self.probability: NDArray = group["probability"].to_numpy()
        self.effect: NDArray = group["effect"].to_numpy()
        self.weight: NDArray = group["weight"].to_numpy()
        doubted = doubted_edges(findings_of(idata=idata), self.features, self.factors)
        self.selected = selected_edges(self.probability, fdr, doubted, given_edges(group))
        self.unresolved = unresolved(group["gap"])
        self.word = "score" if idata.attrs.get("is_score", 0) else "probability"
        # Reads like a loading: its square is the share of variance.
        self.loading = np.sign(self.weight) * np.sqrt(np.clip(self.effect, 0, None))
        self.home = np.argmax(self.probability * (1e-9 + np.abs(self.loading)), axis=1)
        at_home = self.loading[np.arange(len(self.home)), self.home]
        linked = self.selected.any(axis=1)
        self.order = np.lexsort((-at_home, self.home, ~linked))

    @property
    def strength(self) -> NDArray:
        """Largest probability of each feature, ties broken by effect."""
        return self.probability.max(axis=1) + 1e-6 * self.effect.max(axis=1)

    def shown(self, limit: int, only: NDArray | None = None) -> NDArray:
        """The `limit` features with the surest edges, in drawing order."""
        keep = np.ones(len(self.features), dtype=bool) if only is None else only
        if keep.sum() > limit:
            cut = np.sort(self.strength[keep])[-limit]
            keep = keep & (self.strength >= cut)
        return np.array([j for j in self.order if keep[j]][:limit], dtype=int)
