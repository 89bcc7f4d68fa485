"""What frames of sequences hold that would mislead a model, whatever their order: the checks of a table.

Rows of that table are frames. Columns that follow from others are asked for where variables were measured
themselves: behind features that latents make they are what a model expects.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...findings.finding import Finding
from ..sequences import Sequences
from ._cells import MOST_ROWS, Cells
from .dependence import MAKES_A_FACTOR, SHARES_NOISE, copied_columns, dependent_columns
from .filled import LEAST_LEVELS, filled_cells
from .kinds import column_kinds, missing_codes
from .rows import outlying_cells, outlying_rows

__all__ = ["frame_findings"]

_LEAST_FRAMES = 40
_SAME_SEQUENCES = 3  # frames in a row, from which two sequences that are equal are no chance


def frame_findings(sequences: Sequences, columns: list[int], is_measured: bool = False) -> list[Finding]:
    """Cells, frames and columns of sequences that would mislead a fit.

    Parameters
    ----------
    sequences : Sequences
    columns : list of int
        Features to look at.
    is_measured : bool
        Whether features are the variables whose graph is asked for, so that copies and totals are looked for.

    Returns
    -------
    list of Finding
        Of source "data".
    """
    cells = _frames(sequences, columns)
    if cells is None:
        return []
    is_continuous = bool(
        (cells.n_levels >= LEAST_LEVELS).any()
    )  # short sequences of answers repeat by chance
    findings = _repeated_sequences(sequences) if is_continuous else []
    with np.errstate(all="ignore"):
        codes = missing_codes(cells)
        findings += codes or _few_levels(cells)
        far_frames, rows = outlying_rows(cells)
        others = cells.without(rows)
        far_cells, where = outlying_cells(others)
        findings += [*far_frames, *far_cells, *([] if codes else filled_cells(cells))]
        if is_measured:
            copies, copied = copied_columns(others.hidden(where))
            findings += map(_of_causes, [*copies, *dependent_columns(others.hidden(where), copied)])
    return findings


def _of_causes(finding: Finding) -> Finding:
    """What is said of columns that say the same, where no factor is made but edges are asked for."""
    message = finding.message
    for of_factors in (MAKES_A_FACTOR, SHARES_NOISE):
        message = message.removesuffix(of_factors)
    return replace(finding, message=f"{message}: no data tell which of them drives others")


def _frames(sequences: Sequences, columns: list[int]) -> Cells | None:
    """Frames as the rows of a table, evenly some of them where there are many."""
    present = np.ones(sequences.x.shape[:2], bool) if sequences.present is None else sequences.present
    mask = sequences.mask if sequences.mask is not None else np.ones(sequences.x.shape, bool)
    at = np.argwhere(present & mask[:, :, columns].any(-1)) if columns else np.empty((0, 2), int)
    if len(at) < _LEAST_FRAMES:
        return None
    # A cell that makes its column may be anywhere: frames that are furthest out are all looked at.
    size = np.abs(np.where(mask, sequences.x, 0.0))[:, :, columns].max(-1)[at[:, 0], at[:, 1]]
    furthest = np.argsort(-size)[: MOST_ROWS // 100]
    even = np.linspace(0, len(at) - 1, min(len(at), MOST_ROWS)).astype(int)
    s, t = at[np.unique(np.r_[even, furthest])].T
    seen = mask[s, t][:, columns]
    view = np.where(seen, sequences.x[s, t][:, columns], 0.0)
    values = np.where(seen, view * sequences.scale[columns] + sequences.centre[columns], np.nan)
    varies = np.array([len(np.unique(column[~np.isnan(column)])) > 1 for column in values.T])
    if not varies.all():
        values, view = values[:, varies], view[:, varies]
    names = [sequences.feature_names[j] for j, kept in zip(columns, varies, strict=True) if kept]
    rows = [f"{sequences.sequence_names[i]}, frame {k + 1}" for i, k in zip(s, t, strict=True)]
    return Cells(values, view, names, rows, "normal", None, False) if names else None


def _few_levels(cells: Cells) -> list[Finding]:
    """Columns of yes or no, or of a few levels, under the normal noise of frames."""
    kinds = np.array(column_kinds(cells))
    names = [cells.features[j] for j in np.flatnonzero(np.isin(kinds, ("binary", "levels")))]
    if not names:
        return []
    shown = ", ".join(map(repr, names[:5])) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    return [
        Finding(
            "kinds",
            f"{shown} {'have' if len(names) > 1 else 'has'} "
            "few values, as answers or levels of a scale do: "
            "they are taken for numbers with normal noise, and frames of a few values hide where latents are",
            "leave them out, or give what was set from outside as actions",
            source="data",
            columns=tuple(names),
            size=len(names) / len(cells.features),
        )
    ]


def _repeated_sequences(sequences: Sequences) -> list[Finding]:
    """Sequences that are equal to another in every frame."""
    if sequences.x.shape[1] < _SAME_SEQUENCES or len(sequences) < 2:
        return []
    lengths = sequences.lengths
    mask = np.ones(sequences.x.shape, bool) if sequences.mask is None else sequences.mask
    first: dict[bytes, int] = {}
    pairs = []
    for i, (x, seen) in enumerate(zip(sequences.x, mask, strict=True)):
        key = np.where(seen, x, np.inf)[: lengths[i]].tobytes()
        if lengths[i] >= _SAME_SEQUENCES and seen.any() and first.setdefault(key, i) != i:
            pairs.append((i, first[key]))
    if not pairs:
        return []
    names = sequences.sequence_names
    shown = ", ".join(f"{names[i]!r} = {names[j]!r}" for i, j in pairs[:3]) + (
        ", …" if len(pairs) > 3 else ""
    )
    return [
        Finding(
            "rows",
            f"{len(pairs)} of {len(sequences)} sequences repeat another one in every frame ({shown}): they "
            "count twice, and edges look more certain than they are",
            "leave them out unless they are different samples",
            source="data",
            size=len(pairs) / len(sequences),
        )
    ]
