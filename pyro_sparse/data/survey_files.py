"""Files of SPSS (.sav, .zsav) and Stata (.dta) into DataFrames, by their numbers.

A value label ("1 = never") is for people: the number is read. What the file declares as missing (SPSS: codes
or ranges of a variable; Stata: ``.a`` to ``.z``) is NaN, as are system-missing cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from .._utils.sources import check_dense

__all__ = ["read_survey"]

_NAMED = 4  # columns in a message


def read_survey(path: Path, encoding: str | None = None) -> tuple[pd.DataFrame, list[str]]:
    """The table in a file of SPSS or Stata, and what to say of labels and of what is missing.

    Parameters
    ----------
    path : Path
    encoding : str, optional
        Of the texts in it; default what the file says.

    Raises
    ------
    ModuleNotFoundError
        pyreadstat is not installed.
    ValueError
        The table is larger than memory allows.
    """
    kind = path.suffix.lower()
    try:
        import pyreadstat
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"path: {kind} needs pyreadstat; fix: pip install 'pyro-sparse[files]'"
        ) from error
    read = pyreadstat.read_dta if kind == ".dta" else pyreadstat.read_sav
    _, about = read(str(path), metadataonly=True, user_missing=True, encoding=encoding)
    check_dense((max(about.number_rows or 0, 0), about.number_columns or 0), f"path: {str(path)!r}")
    frame, _ = read(str(path), user_missing=False, encoding=encoding)
    numeric = {name for name in frame.columns if pd.api.types.is_numeric_dtype(frame[name])}
    labelled = [name for name in about.variable_value_labels if name in numeric]
    said = []
    if labelled:
        said.append(f"value labels are read as their numbers ({_listed(labelled)})")
    declared = {name: codes for name, codes in about.missing_ranges.items() if name in numeric}
    if declared:
        shown = [f"{name}: {_codes(codes)}" for name, codes in declared.items()]
        said.append(f"codes that the file declares as missing are missing cells ({_listed(shown)})")
    return frame, [f"path: in {path.name!r} {'; '.join(said)}"] if said else []


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more columns" if len(names) > _NAMED else ""
    return "; ".join(names[:_NAMED]) + more


def _codes(ranges: Sequence[Any]) -> str:
    """Codes and ranges of codes, as "7, 90 to 99"."""
    return ", ".join(
        _code(span["lo"]) if span["lo"] == span["hi"] else f"{_code(span['lo'])} to {_code(span['hi'])}"
        for span in sorted(ranges, key=lambda span: str(span["lo"]))
    )


def _code(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
