"""The sites of a program: which plate each is in, how it is mapped to real numbers, what it declares.

Read off one run with draws from the prior. What could not be sampled later is refused here, before training.
"""

from __future__ import annotations

import copy
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, cast

import torch
from pyro import poutine
from pyro.distributions import Delta, ExpandedDistribution, MaskedDistribution
from torch import Tensor
from torch.distributions import (
    Distribution,
    Independent,
    Transform,
    TransformedDistribution,
    biject_to,
    constraints,
)

from ...distributions.unsqueezed import Unsqueezed
from ...programs.parameters import GivenParameters, link_of_parameter
from ...programs.sites import DECLARED

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...programs.data import DataView

__all__ = ["GLOBAL", "PARAMETER", "Layout", "Site", "is_within", "read_layout", "unchecked"]

Group = Literal["rows", "features", "global"]
GLOBAL: Group = "global"
PARAMETER = "parameter"  # kind of a site
_DIMS = {"rows": -2, "features": -1}
_PRECISION = (
    "; chains compute in double precision: of a tensor or a network that is made outside of the program "
    "write A.to(d.x.dtype), net.to(d.x.dtype)"
)
_HINTS = {  # by words of torch's and Pyro's errors
    "'float' object has no attribute 'dim'": "; a point mass takes a tensor, dist.Delta(torch.tensor(0.))",
    "same dtype": _PRECISION,
    "tensors used as indices": "; numbers of Data are real: give labels as text, which become 0, 1, …, or "
    "write d.name.long()",
}
_OF_FACTORS = ("edges", "gates", "factors", "axis", "each")  # kinds of sites whose last axis is the factors'
_TRIES = 8
_FAR = 3.0  # standard deviations of the real numbers that are mapped to a support, to see whether it is one


@dataclass(frozen=True)
class Site:
    """A sample statement, or a parameter.

    Attributes
    ----------
    name : str
    observed : bool
    plates : dict of str to int
        Dimension of each plate, from the right.
    batch_dim : int
        How many batch dimensions its log density has.
    group : {"rows", "features", "global"}
    link : Transform or None
        From real numbers to its support; None of what is observed or a gate.
    declared : dict
        By `edges`, `gates`, `factors` or `sample`; of `pyro.param` a parameter; else empty.
    """

    name: str
    observed: bool
    plates: dict[str, int]
    batch_dim: int
    group: Group
    link: Transform | None
    declared: dict[str, Any]

    @property
    def kind(self) -> str:
        """What it is: "edges", "gates", "factors", "axis", "each", "correlation", "parameter" or ""."""
        return str(self.declared.get("kind", ""))

    def has_support_of(self, other: Site, u: Tensor) -> bool:
        """Whether another run's site of this name has the same bounds.

        Parameters
        ----------
        other : Site
        u : Tensor
            Real numbers that are a value.
        """
        if self.link is None or other.link is None:
            return self.link is other.link
        return torch.allclose(self.link(u), other.link(u), rtol=1e-9, atol=1e-12)


@dataclass(frozen=True)
class Layout:
    """All sites of a program.

    Attributes
    ----------
    sites : dict of str to Site
        In the order of the program.
    n_factors : int
    derived : dict of str to Site
        What the program names without a density, outside of the plate of rows.
    """

    sites: dict[str, Site]
    n_factors: int
    derived: dict[str, Site] = field(default_factory=dict)

    def latent(self, group: str | None = None) -> list[Site]:
        """Continuous latent sites without edges, of one group or of all."""
        others = ("edges", "gates", PARAMETER)
        return [
            site
            for site in self.sites.values()
            if not site.observed and site.kind not in others and group in (None, site.group)
        ]

    @property
    def parameters(self) -> list[Site]:
        """Numbers without a prior, which are estimated."""
        return [site for site in self.sites.values() if site.kind == PARAMETER]

    @property
    def edges(self) -> list[Site]:
        """Edge sites, weights and gates."""
        return [site for site in self.sites.values() if site.kind in ("edges", "gates")]

    @property
    def edge_names(self) -> frozenset[str]:
        """Names of the edge sites."""
        return frozenset(site.name for site in self.edges)

    @property
    def has_axes(self) -> bool:
        """Whether factors are declared, so that they have neither order nor signs of their own."""
        return any(site.kind == "factors" for site in self.sites.values())

    @property
    def axes(self) -> list[Site]:
        """Sites whose last axis is that of the factors."""
        return [s for s in self.sites.values() if s.kind in ("edges", "factors", "axis")]


def read_layout(program: Callable[[DataView], Any], view: DataView) -> tuple[Layout, dict[str, Tensor]]:
    """The layout of a program, and a draw of its latent sites from the prior, as real numbers.

    Parameters
    ----------
    program : callable
    view : DataView

    Raises
    ------
    ValueError
        The program has no edges, no rows, or a latent site that cannot be sampled; or two sites of one name.
    TypeError
        It fails, whatever the reason.
    """
    trace = _traced(program, view)
    sites: dict[str, Site] = {}
    values: dict[str, Tensor] = {}
    derived: dict[str, Site] = {}
    for name, node in trace.nodes.items():
        if node["type"] == "param":
            link = link_of_parameter(node)
            sites[name] = Site(name, False, {}, 0, GLOBAL, link, {"kind": PARAMETER})
            values[name] = link.inv(node["value"])
            continue
        if node["type"] != "sample":
            continue
        if type(node["fn"]).__name__ == "_Subsample":
            _check_subsample(name, node)
            continue
        site = _site(name, node)
        if node["infer"].get("_deterministic"):  # a name for what is computed, and no density
            if site.group != "rows":
                derived[name] = site
            continue
        sites[name] = site
        _check_cells(site, node, view)
        if site.observed:
            _check_observed(site, node)
        else:
            _check_latent(site, node)
            value = node["value"].detach()
            _check_last_axis(site, value.shape, view.n_factors)
            values[name] = value if site.link is None else site.link.inv(value)
            if site.link is not None:
                _check_support(name, node["fn"], site.link, values[name])
    layout = Layout(sites, view.n_factors, derived)
    _check_whole(layout)
    for name, value in values.items():
        if not torch.isfinite(value).all():
            raise ValueError(
                f"program: site {name!r} drew a value that is not finite from its prior"
                if sites[name].kind != PARAMETER
                else f"program: the initial value of parameter {name!r} is not finite, or not within its "
                "constraint"
            )
    return layout, values


def _traced(program: Callable[[DataView], Any], view: DataView) -> Any:
    try:
        with GivenParameters():
            return poutine.trace(program).get_trace(view)
    except (ValueError, TypeError, AttributeError) as error:
        raise type(error)(f"program: fails on these data: {_short(error)}{_hint(error)}") from error
    except Exception as error:
        if "Multiple sample sites named" in str(error):
            name = str(error).split("'")[1]
            raise ValueError(f"program: two sites are called {name!r}; give each its own name") from error
        kind = type(error).__name__
        raise ValueError(f"program: fails on these data: {kind}: {_short(error)}{_hint(error)}") from error


def _hint(error: Exception) -> str:
    """What to do about what torch and Pyro say."""
    return next((hint for words, hint in _HINTS.items() if words in str(error)), "")


def _short(error: Exception) -> str:
    """What it says, without Pyro's table of shapes."""
    return re.split(r"\n\s*Trace Shapes:", str(error))[0].strip()


def _site(name: str, node: dict[str, Any]) -> Site:
    plates = {frame.name: frame.dim for frame in node["cond_indep_stack"]}
    for plate, dim in plates.items():
        if plate not in _DIMS:
            raise ValueError(
                f"program: site {name!r} is in a plate {plate!r}; a program has d.rows and d.features, and "
                "what else is repeated is an event (.to_event)"
            )
        if dim != _DIMS[plate]:
            raise ValueError(f"program: plate {plate!r} has dimension {dim}; use d.{plate}, as it is")
    group: Group = "rows" if "rows" in plates else "features" if "features" in plates else "global"
    declared = dict(node["infer"].get(DECLARED, {}))
    fn = node["fn"]
    if declared.get("kind") in ("edges", "gates"):
        _check_edges(name, node)
    link = None
    if not node["is_observed"] and declared.get("kind") != "gates":
        link = _link(name, fn)
    return Site(name, bool(node["is_observed"]), plates, len(fn.batch_shape), group, link, declared)


def _check_subsample(name: str, node: dict[str, Any]) -> None:
    """Complain of a plate of which a part is drawn."""
    size, drawn = node["fn"].size, node["fn"].subsample_size
    if drawn is not None and size != drawn:
        raise ValueError(
            f"program: plate {name!r} takes {drawn} of {size} (subsample), and chains read all rows and all "
            "features; write 'with d.rows:' and 'with d.features:'"
        )


def _check_cells(site: Site, node: dict[str, Any], view: DataView) -> None:
    """Complain of terms that count twice: of each row the outcomes of all, or of one column under each.

    An outcome (row,) beside a distribution (row, 1) is broadcast to a density (row, row).
    """
    fn, value, name = node["fn"], node["value"], site.name
    plates = ", ".join(f"d.{plate}" for plate in site.plates)
    sizes = {"rows": view.n_rows, "features": view.n_features}
    for frame in node["cond_indep_stack"]:
        if frame.size != sizes[frame.name] or (frame.full_size or frame.size) != frame.size:
            raise ValueError(
                f"program: site {name!r} is in a plate {frame.name!r} of {frame.size}, and there are "
                f"{sizes[frame.name]}; write 'with d.{frame.name}:' (chains read all, without subsample)"
            )
    if not site.observed or not site.plates:
        return
    batch = fn.batch_shape
    events = value.dim() - fn.event_dim
    shape = value.shape[:events] if events >= 0 else torch.Size()
    both = torch.broadcast_shapes(batch, shape)
    beside = {"rows": both[-1:], "features": both[-2:-1]}
    for plate, other in (("rows", "features"), ("features", "rows")):
        if other not in site.plates and any(size != 1 for size in beside[plate]):
            wanted, hint = (
                ("(row, 1)", "write y[:, None] of numbers, logits[:, None, :] of events")
                if plate == "rows"
                else ("(feature,)", "write a number for each feature")
            )
            raise ValueError(
                f"program: site {name!r} in {plates} has a distribution of batch shape {tuple(batch)} and "
                f"values of shape {tuple(value.shape)}, which make terms of shape {tuple(both)}; wanted "
                f"{wanted}: {hint}, and 'with d.rows, d.features:' around cells of a table"
            )
    if not value.numel() or shape.numel() == 1:  # of `pyro.factor`; one number for all
        return
    padded = (1,) * (len(both) - len(shape)) + tuple(shape)
    if any(padded[dim] != both[dim] for dim in (_DIMS[plate] for plate in site.plates) if -dim <= len(both)):
        raise ValueError(
            f"program: site {name!r} in {plates} observes values of shape {tuple(shape)} for terms of shape "
            f"{tuple(both)}, so that one value would count several times; give each its own "
            "(value.expand(...) if that is what is meant)"
        )


def _check_edges(name: str, node: dict[str, Any]) -> None:
    """Complain of edges that are no latent site with the density of their statement."""
    if node["is_observed"]:
        raise ValueError(
            f"program: the weights of edges {name!r} are given, by poutine.condition or obs=, and chains "
            "find edges: say by permitted= and required= which are known"
        )
    if node["mask"] is not None or node["scale"] != 1:
        raise ValueError(
            f"program: edges {name!r} are inside of poutine.mask or poutine.scale, whose factor their sweeps "
            "do not know; write 'with d.features:' of the edges outside of it"
        )


def _link(name: str, fn: Any) -> Transform:
    """From real numbers to a distribution's support."""
    if isinstance(_base(fn), Delta):
        raise ValueError(
            f"program: site {name!r} is a point mass, which no step of a chain can leave; name what is "
            "computed by pyro.deterministic"
        )
    if fn.has_enumerate_support or fn.support.is_discrete:
        raise ValueError(
            f"program: site {name!r} is discrete, and chains draw real numbers and gates only: sum it out "
            "of the density, or declare 0/1 edges by ps.gates"
        )
    try:
        link = biject_to(_of_components(fn.support))
    except NotImplementedError as error:
        raise ValueError(
            f"program: site {name!r} has the support {fn.support}, and there is no transform from real "
            "numbers to it; write it by a site of real numbers"
        ) from error
    return link


def _of_components(support: Any) -> Any:
    """The support of a mixture's components, in place of torch's own constraint, which has no transform."""
    if isinstance(support, constraints.independent):
        inner = _of_components(support.base_constraint)
        return constraints.independent(inner, support.reinterpreted_batch_ndims)
    is_mixture = type(support).__name__ == "MixtureSameFamilyConstraint"
    return support.base_constraint if is_mixture else support


def _base(fn: Any) -> Any:
    """A distribution without its plates, events and masks."""
    while isinstance(fn, Independent | MaskedDistribution | ExpandedDistribution | Unsqueezed):
        fn = fn.base if isinstance(fn, Unsqueezed) else fn.base_dist
    return fn


def unchecked(fn: Any) -> Any:
    """A distribution that does not look at its values, which have none while they are recorded.

    One that was expanded outside of the program has taken the order to look from the settings there.

    Parameters
    ----------
    fn : Distribution
    """
    parts = {n: unchecked(v) for n, v in vars(fn).items() if isinstance(v, Distribution)}
    if not fn._validate_args and all(vars(fn)[name] is value for name, value in parts.items()):
        return fn
    copied = copy.copy(fn)
    vars(copied).update(parts, _validate_args=False)
    return copied


def _check_support(name: str, fn: Any, link: Transform, u: Tensor) -> None:
    """Complain of a transformed distribution that claims more values than it has.

    Of ``TransformedDistribution(Exponential(1.), AffineTransform(1., 2.))`` torch says that its values are
    all real numbers.

    Parameters
    ----------
    name : str
        Of the site.
    fn : Distribution
    link : Transform
        From real numbers to its support.
    u : Tensor
        Real numbers that are a value.
    """
    base = _base(fn)
    if not isinstance(base, TransformedDistribution):
        return
    random = torch.Generator().manual_seed(0)
    for _ in range(_TRIES):
        far = _FAR * torch.randn(u.shape, generator=random, dtype=torch.float64).to(u)
        value = link(far)
        value = value.squeeze(-1 - fn.event_dim) if isinstance(fn, Unsqueezed) else value
        for transform in reversed(base.transforms):
            value = transform.inv(value)
        if not bool(cast("Any", base.base_dist.support).check(value).all()):
            inner = type(_base(base.base_dist)).__name__
            raise ValueError(
                f"program: site {name!r} is a transformed {inner}, which has bounds that its transform "
                f"hides, and chains would leave them; draw the {inner} at a site and transform its value"
            )


def is_within(fn: Any, value: Tensor) -> Tensor | None:
    """Whether data are where a transformed distribution has a density; None of any other distribution.

    Without Pyro's checks torch gives ``TransformedDistribution(Exponential(1.), AffineTransform(shift, 1.))``
    a density below the shift, too, the higher the further away.

    Parameters
    ----------
    fn : Distribution
        Of an observed site.
    value : Tensor

    Returns
    -------
    Tensor of bool, of the batch shape, or None
    """
    base = _base(fn)
    if not isinstance(base, TransformedDistribution) or isinstance(fn, Unsqueezed):
        return None
    inner = cast("Any", base.base_dist)
    has_density_of_its_own = type(base).log_prob is not TransformedDistribution.log_prob
    if has_density_of_its_own or inner.support is constraints.real:
        return None
    for transform in reversed(base.transforms):
        value = transform.inv(value)
    inside: Tensor = inner.support.check(value)
    extra = inside.dim() - len(fn.batch_shape)
    return inside.flatten(-extra).all(-1) if extra > 0 else inside


def _check_observed(site: Site, node: dict[str, Any]) -> None:
    """Complain of data that a distribution has not: torch's Bernoulli gives 2.3 a density, too."""
    fn, value = node["fn"], node["value"]
    if not value.numel():  # of `pyro.factor`
        return
    try:
        inside = fn.support.check(value)
    except (AttributeError, NotImplementedError):  # of a density that says nothing of its support
        return
    bad = (~inside).broadcast_to(torch.broadcast_shapes(inside.shape, fn.batch_shape))
    for mask in (node["mask"], *_masks(fn)):
        bad = bad if mask is None else bad & torch.as_tensor(mask, device=bad.device)
    if not bool(bad.any()):
        return
    where = bad.nonzero()[0].tolist()
    place = ", ".join(
        f"{plate.removesuffix('s')} {where[dim]}" for plate, dim in site.plates.items() if -dim <= len(where)
    )
    event = fn.event_dim
    cell = value.broadcast_to(*bad.shape, *value.shape[value.dim() - event :])[tuple(where)]
    raise ValueError(
        f"program: site {site.name!r} observes {cell.tolist()}{' at ' + place if place else ''}, which is "
        f"outside of the support of its {type(_base(fn)).__name__}; give it another distribution there, or "
        "leave these cells out of it by .mask"
    )


def _masks(fn: Any) -> list[Any]:
    """Of a distribution, outside of events."""
    masks = []
    while isinstance(fn, MaskedDistribution | ExpandedDistribution):
        masks += [fn._mask] if isinstance(fn, MaskedDistribution) else []
        fn = fn.base_dist
    return masks


def _check_latent(site: Site, node: dict[str, Any]) -> None:
    name, batch = site.name, tuple(node["fn"].batch_shape)
    if {"rows", "features"} <= set(site.plates):
        raise ValueError(
            f"program: {name!r} is a latent of every cell, which cannot be sampled; "
            + (
                "leave missing cells out by .mask(d.seen), not obs_mask="
                if name.endswith("_unobserved")
                else "sum it out of the density of the cells"
            )
        )
    beside = {"rows": batch[:-2] + batch[-1:], "features": batch[:-1], "global": batch}[site.group]
    if any(size != 1 for size in beside):
        raise ValueError(
            f"program: site {name!r} has batch shape {batch} "
            + ("outside of any plate" if site.group == GLOBAL else f"inside of d.{site.group}")
            + "; what is not one for each element is an event: add .to_event(1)"
        )
    if site.kind in ("edges", "gates") and site.group != "features":
        raise ValueError(
            f"program: edges {name!r} are not inside of d.features; write 'with d.features:' around them"
        )
    if site.kind == "factors" and site.group != "rows":
        raise ValueError(
            f"program: factors {name!r} are not inside of d.rows; write 'with d.rows:' around them"
        )


def _check_last_axis(site: Site, shape: torch.Size, n_factors: int) -> None:
    """Complain of an axis of the factors that has another size than n_factors."""
    if site.kind not in _OF_FACTORS or shape[-1] == n_factors:
        return
    what = "edges lead" if site.kind in ("edges", "gates") else "its last axis leads"
    raise ValueError(
        f"program: site {site.name!r} has values of shape {tuple(shape)}: {what} to {shape[-1]} factor(s), "
        f"and n_factors is {n_factors}. Of edges to covariates, or to products of factors, make columns of "
        "one site: n_factors counts all columns, z is drawn by pyro.sample and not by ps.factors, and "
        "torch.cat([z, d.dose], -1) @ W.mT takes them"
    )


def _check_whole(layout: Layout) -> None:
    if not layout.edges:
        raise ValueError(
            "program: declares no edges; want at least one ps.edges or ps.gates site in d.features"
        )
    if not any("rows" in site.plates for site in layout.sites.values()):
        raise ValueError("program: has no site in d.rows; write 'with d.rows, d.features:' around the cells")
    if not any(site.observed for site in layout.sites.values()):
        raise ValueError("program: observes nothing; give the data to a site, obs=d.x, or to pyro.factor")
