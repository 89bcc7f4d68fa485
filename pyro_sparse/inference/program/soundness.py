"""What is looked at before chains begin: whether a program says the same each time, and what depends on what.

Which terms depend on which element of a plate is found by moving elements. Of n rows, those whose number has
some binary digit are moved together and the others are looked at, for each digit and both of its values: two
rows differ in one digit at least, so that none can depend on another unseen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .layout import GLOBAL, Layout

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .recorded import Block, Position, RecordedDensity

__all__ = ["blanket_of", "check_finite", "check_repeatable", "check_unseen", "elsewhere"]

_MOVE = 0.1  # of an element, on the scale of real numbers, to see which terms change
_CHANGED = 1e-9  # relative change of a term that is not rounding, in double precision
_AWAY = 0.3  # of each number, to see whether what holds at a start holds elsewhere
_FIELD = (
    "; to let features share edges, give log_odds a field: a site outside of d.features (.to_event) with a "
    "number for each of them"
)


def check_finite(density: RecordedDensity, logs: Mapping[str, Tensor]) -> None:
    """Complain of densities that are not finite where chains begin, by site and place.

    Parameters
    ----------
    density : RecordedDensity
    logs : mapping of str to Tensor (chain, *batch)
    """
    for name, log_prob in logs.items():
        _check_finite(name, log_prob, density.layout)


def check_repeatable(density: RecordedDensity, logs: Mapping[str, Tensor]) -> None:
    """Complain of a program that does not say the same of the same values when it runs again.

    Parameters
    ----------
    density : RecordedDensity
    logs : mapping of str to Tensor (chain, *batch)
        What the recorded graph says where chains begin.
    """
    for name, log_prob in density.of_first_chain().items():
        if _relative(log_prob, logs[name][0]).max() > _CHANGED:
            raise ValueError(
                f"program: runs twice with the same values and says two things of site {name!r}; it draws "
                "random numbers outside of its sites (numpy, random), or changes something that it keeps: "
                "make them a site, or draw them before"
            )


def check_unseen(density: RecordedDensity) -> None:
    """Complain of densities that read missing cells, which hold the medians of their columns.

    Parameters
    ----------
    density : RecordedDensity
    """
    data = density.data
    if data.seen.all():
        return
    x = torch.as_tensor(data.x)
    flat = x.reshape(-1, x.shape[-1])
    low, high = flat.amin(0), flat.amax(0)
    other = torch.where((x - low).abs() > (x - high).abs(), low, high)
    other = torch.where(other == x, x + 1, other)
    tables = [torch.where(torch.as_tensor(data.seen), x, filler) for filler in (x, other)]
    before, after = (density.of_first_chain(table) for table in tables)
    for name, log_prob in before.items():
        if _relative(after[name], log_prob).max() > _CHANGED:
            raise ValueError(
                f"program: the density of site {name!r} reads missing cells, where d.x holds the median of "
                "its column, as if they had been seen; leave them out: .mask(d.seen) at the end of the "
                "distribution"
            )


def elsewhere(density: RecordedDensity, u: Position) -> Position:
    """Another position near this one, always the same: every number moved, and all gates open.

    Parameters
    ----------
    density : RecordedDensity
    u : dict of Tensor
    """
    random = torch.Generator().manual_seed(0)
    moved = {}
    for name, value in u.items():
        noise = torch.randn(value.shape, generator=random, dtype=value.dtype).to(value.device)
        is_gate = density.layout.sites[name].kind == "gates"
        moved[name] = torch.ones_like(value) if is_gate else value + _AWAY * noise
    return moved


def blanket_of(density: RecordedDensity, block: Block, before: Mapping[str, Tensor]) -> frozenset[str]:
    """Sites whose terms change if a block moves; complains of terms of other elements.

    Parameters
    ----------
    density : RecordedDensity
    block : Block
    before : mapping of str to Tensor (chain, *batch)
        Log densities where chains begin.
    """
    changed: set[str] = set()
    for site in block.sites:
        changed |= {site, *_changed_by(density, site, block, before)}
        # What is flat where the start is need not be elsewhere.
        changed |= {name for name, inputs in density.inputs_of.items() if site in inputs}
    if block.name in density.layout.edge_names:  # whose own density the kernels of edges have
        changed.discard(block.name)
    return frozenset(changed)


def _changed_by(density: RecordedDensity, name: str, block: Block, before: Mapping[str, Tensor]) -> set[str]:
    changed: set[str] = set()
    elements = density.element_first(density.start[name], name, block.group)
    patterns, chains = _patterns(elements.shape[1]), len(elements)
    random = torch.Generator().manual_seed(0)
    for first in range(0, len(patterns), chains):  # each chain moves elements of its own
        moves = patterns[[(first + c) % len(patterns) for c in range(chains)]].to(elements.device)
        if density.layout.sites[name].kind == "gates":
            step = 1 - 2 * elements
        else:  # not the same for all: two might cancel
            noise = torch.rand(elements.shape, generator=random, dtype=elements.dtype)
            step = _MOVE * (0.5 + noise).to(elements.device)
        moved = elements + step * moves.reshape(*moves.shape, *[1] * (elements.dim() - 2))
        after = density.logs({**density.start, name: density.element_back(moved, name, block.group)})
        for term, log_prob in after.items():
            change = _relative(log_prob, before[term])
            if not change.max() > 0:
                continue
            changed.add(term)
            if block.group == GLOBAL:
                continue
            inside = block.group in density.layout.sites[term].plates
            if inside:
                dim = log_prob.dim() + density.layout.sites[term].plates[block.group]
                change = change.movedim(dim, 1).reshape(*moves.shape, -1)[~moves]
            if change.numel() and change.max() > _CHANGED:
                raise ValueError(_dependence(density.layout, name, term, block.group, inside))
    return changed


def _patterns(n: int) -> Tensor:
    """Which of n elements are moved together, (pattern, element)."""
    number = torch.arange(n)
    digits = [
        (number >> digit) % 2 == value for digit in range(max(1, (n - 1).bit_length())) for value in (0, 1)
    ]
    return torch.stack([digit for digit in digits if bool(digit.any())])


def _relative(now: Tensor, before: Tensor) -> Tensor:
    """Relative change, infinite where there is a number no more."""
    return ((now - before).abs() / (1 + before.abs())).nan_to_num(torch.inf)


def _dependence(layout: Layout, name: str, term: str, group: str, inside: bool) -> str:
    if group == "features" and not inside and "rows" in layout.sites[term].plates:
        return (
            f"program: one element of {name!r} moves site {term!r}, which is in d.rows alone, so that chains "
            "do not see which feature its terms belong to; observe all columns in one statement within "
            "'with d.rows, d.features:', each kind of column by its own .mask (no loop over columns, no "
            "to_event over them)"
        )
    terms = f"the terms of other {group}" if inside else f"a term outside of d.{group}"
    of_cells = "rows" in layout.sites[term].plates
    of_edges = not of_cells and layout.edge_names & {name, term}
    return (
        f"program: one element of {name!r} moves {terms}, at site {term!r}; given the rest, "
        f"{group} must be independent of one another (a sum or a norm over "
        f"d.{group} is what usually does this)" + (_FIELD if of_edges else "")
    )


def _check_finite(name: str, log_prob: Tensor, layout: Layout) -> None:
    bad = ~torch.isfinite(log_prob)
    if not bool(bad.any()):
        return
    where = bad.nonzero()[0].tolist()[1:]
    plates = layout.sites[name].plates
    place = ", ".join(
        f"{plate.removesuffix('s')} {where[len(where) + dim]}"
        for plate, dim in plates.items()
        if -dim <= len(where)
    )
    raise ValueError(
        f"program: the log density of site {name!r}{' at ' + place if place else ''} is "
        f"{float(log_prob[tuple(bad.nonzero()[0])])} at a draw from the prior; wanted a finite number (is "
        "the value in the support? a clamp may help)"
    )
