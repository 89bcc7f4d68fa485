"""Files of fits of tables: all but the rows, which are the caller's to keep."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch

from ..._utils.version import __version__
from ...data.design import ARRAYS as DESIGN_ARRAYS
from ...data.design import Design
from ...data.row_weights import RowWeights
from ...data.table import Table
from ...findings.finding import read_findings, write_findings
from ..training import checkpoint as files

if TYPE_CHECKING:
    from .result import Fit

__all__ = ["fields_of", "write"]

_ARRAYS = ("weights", "effects", "edge_score", "eta", "elbo", "heldout_elbo", "factor_cov")


def write(fit: Fit, path: str | os.PathLike[str]) -> None:
    """Write everything but the data to one file that loads with ``weights_only=True``.

    Parameters
    ----------
    fit : Fit
    path : path
    """
    arrays = {name: torch.as_tensor(getattr(fit, name)) for name in _ARRAYS}
    arrays |= {f"alignment.{name}": torch.as_tensor(value) for name, value in fit.alignment.items()}
    arrays |= {f"table.{name}": torch.as_tensor(value) for name, value in fit.table.units().items()}
    arrays |= {f"per_row.{name}": torch.as_tensor(value) for name, value in fit.table.per_row.items()}
    if fit.table.design is not None:
        arrays |= {f"design.{n}": torch.as_tensor(getattr(fit.table.design, n)) for n in DESIGN_ARRAYS}
    if fit.table.weights is not None:
        arrays["row_weights"] = torch.as_tensor(fit.table.weights.values)
    if fit.excess_cov is not None:
        arrays["excess_cov"] = torch.as_tensor(fit.excess_cov)
    if fit.noise_sd is not None:
        arrays["noise_sd"] = torch.as_tensor(fit.noise_sd)
    made = files.made(fit.model)
    meta = {
        "version": __version__,
        "made": made if isinstance(made, dict) else None,
        "fingerprint": files.fingerprint(fit.model, {}),
        "best": fit.best,
        "n_restarts": fit.model.n_restarts,
        "n_samples": fit.model.n_samples,
        "missing": fit.model.missing,
        "dtype": str(fit.model.factor_cov.dtype).removeprefix("torch."),
        "feature_names": fit.feature_names,
        "sample_names": fit.sample_names,
        "row_units": dict(fit.table.row_units),
        "design": None if fit.table.design is None else fit.table.design.as_dict(),
        "weights": None if fit.table.weights is None else fit.table.weights.as_dict(),
        "settings": fit.settings,
        "findings": write_findings(fit.findings),
        "history": fit.history.to_dict("list"),
    }
    files.write(path, "fit", meta, {"model": fit.model.state_dict(), "arrays": arrays})


def fields_of(meta: dict[str, Any], arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """What a `Fit` is made of beside its model, from a file that `write` made.

    Parameters
    ----------
    meta : dict
        Plain JSON of the file.
    arrays : dict of ndarray
        By name: weights, effects and edge_score (restart, feature, factor), elbo (restart,) …
    """
    units: dict[str, Any] = {n.removeprefix("table."): v for n, v in arrays.items() if n.startswith("table.")}
    per_row = {n.removeprefix("per_row."): v for n, v in arrays.items() if n.startswith("per_row.")}
    names = {n: meta[n] for n in ("feature_names", "sample_names", "row_units")}
    design = None
    if meta.get("design") is not None:
        design = Design.of_dict(meta["design"], *(arrays[f"design.{n}"] for n in DESIGN_ARRAYS))
    weights = None
    if (about := meta.get("weights")) is not None:
        weights = RowWeights(about["type"], arrays["row_weights"], about["column"])
    return {
        "table": Table.without_rows(**units, **names, per_row=per_row, design=design, weights=weights),
        "best": meta["best"],
        **{n: arrays[n] for n in _ARRAYS},
        "history": pd.DataFrame(meta["history"]),
        "alignment": {n: arrays[f"alignment.{n}"] for n in ("permutation", "sign", "congruence")},
        "noise_sd": arrays.get("noise_sd"),
        "_excess": arrays.get("excess_cov"),
        "settings": meta["settings"],
        "findings": read_findings(meta["findings"]),
    }
