"""Checkpoints and saved fits: tensors and one JSON text in a file that loads with ``weights_only=True``.

Nothing is unpickled that was not written here as a tensor, a number or a string. A file states its format,
the package's version and a fingerprint of the model, so that a stale or foreign one is refused by name; and
its last line is a digest of all before it, so that one with a single bit changed is refused, too.
"""

from __future__ import annotations

import hashlib
import inspect
import io
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch

from ..._utils.atomic import read_verified, with_digest, write_atomically
from ..._utils.paths import file_to_write
from ..._utils.recorded import describe

if TYPE_CHECKING:
    from ...models.base import Model

__all__ = [
    "differences",
    "digest",
    "explained",
    "fingerprint",
    "made",
    "read",
    "read_run",
    "write",
    "write_run",
]

# 1: encoders of counts read shares, totals were taken for depth by default;
# 2: totals of few features were not shared out; 3: what rows have beside their cells had no names
FORMAT = 4
_LONG = 500  # characters of what a message shows


def fingerprint(model: Model, settings: dict[str, Any]) -> str:
    """JSON text of what must agree for a file to fit a model: its kind and sizes, and `settings`."""
    shape = {
        "model": type(model).__name__,
        "n_features": model.n_features,
        "n_factors": getattr(model, "n_factors", None) or model.n_latents,
        "likelihood": getattr(getattr(model, "likelihood", None), "name", "normal"),
        "prior": type(getattr(model, "prior", None)).__name__,
        "decoder": getattr(model, "decoder_kind", ""),
        "hidden": getattr(model, "hidden", 0),
        "encoder_hidden": getattr(model, "encoder_hidden", 0),
        **{
            f"{component} made with": _arguments(getattr(model, component, None))
            for component in ("prior", "likelihood")
        },
    }
    return json.dumps({**shape, **_edge_constraints(model), **settings}, sort_keys=True)


def _edge_constraints(model: object) -> dict[str, Any]:
    """What the model's arguments say of single edges; long lists as a hash."""
    prescribed: dict[str, Any] = {}
    for name in ("anchors", "required", "forbidden", "edge_odds"):
        edges = getattr(model, name, None)
        if edges is None or (hasattr(edges, "__len__") and not len(edges)):
            continue
        text = json.dumps(describe(edges), sort_keys=True)
        prescribed[name] = text if len(text) < _LONG else hashlib.sha256(text.encode()).hexdigest()
    return prescribed


def _arguments(thing: object) -> dict[str, Any] | None:
    """What its constructor was given or took by default, if that is plain."""
    parameters = inspect.signature(type(thing).__init__).parameters.values()
    defaults = {p.name: p.default for p in parameters if p.default is not p.empty}
    try:
        return {
            name: describe(value) for name, value in (defaults | getattr(thing, "_arguments", {})).items()
        }
    except TypeError:
        return None


def differences(theirs: str, ours: str) -> str:
    """What two fingerprints disagree about, in words; empty when they agree."""
    a, b = json.loads(theirs), json.loads(ours)
    return ", ".join(
        f"{name}: {a.get(name)!r} there, {b.get(name)!r} here"
        for name in sorted(a.keys() | b.keys())
        if a.get(name) != b.get(name)
    )


def write(path: str | os.PathLike[str], kind: str, meta: dict[str, Any], tensors: dict[str, Any]) -> None:
    """Write whole or not at all: a run cut off while writing leaves the previous file."""
    path = file_to_write(path, "fit.pt")
    text = json.dumps({"format": FORMAT, "kind": kind, **meta})
    content = io.BytesIO()
    torch.save({"meta": text, "tensors": tensors}, content)
    write_atomically(path, with_digest(content.getvalue()))


def read(path: str | os.PathLike[str], *kinds: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Metadata and tensors of a file written by `write`, of one of the `kinds`.

    Raises
    ------
    FileNotFoundError, ValueError
        Absent, changed since it was written, not one of ours, of another kind, or of another format.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"checkpoint: no file at {str(path)!r}")
    if not path.is_file():
        raise ValueError(f"checkpoint: {str(path)!r} is a folder, pipe or device; give a file")
    payload = read_verified(path, "checkpoint")
    try:
        content = torch.load(io.BytesIO(payload), weights_only=True, map_location="cpu")
        meta, tensors = json.loads(content["meta"]), content["tensors"]
        if not (isinstance(meta, dict) and isinstance(tensors, dict)):
            raise TypeError
    except Exception as error:
        raise ValueError(
            f"checkpoint: {str(path)!r} is not a pyro_sparse file ({type(error).__name__}); "
            "give one written by this package"
        ) from error
    if meta.get("format") != FORMAT:
        raise ValueError(
            f"checkpoint: {str(path)!r} has format {meta.get('format')}, this version reads {FORMAT}; "
            "fit again, or use the version that wrote it"
        )
    if meta.get("kind") not in kinds:
        raise ValueError(f"checkpoint: {str(path)!r} holds a {meta.get('kind')!r}, wanted a {kinds[0]!r}")
    return meta, tensors


@contextmanager
def explained(argument: str, path: str | os.PathLike[str] | None) -> Iterator[None]:
    """Say of what a file lacks, or has in another shape, that it is the file's fault and what to do.

    Parameters
    ----------
    argument : str
        What the message calls the path.
    path : path

    Raises
    ------
    ValueError
        In place of what was raised inside, but for the complaints that already name an argument.
    """
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        if isinstance(error, ValueError) and str(error).startswith(("checkpoint:", "load:")):
            raise
        lacks = f"no {error}" if isinstance(error, KeyError) else str(error).split("\n")[0]
        raise ValueError(
            f"{argument}: {str(path)!r} does not hold what this version of pyro_sparse writes ({lacks}), so "
            "that another version wrote it, or another program changed it; fit again"
        ) from error


def made(model: object) -> dict[str, Any] | str:
    """How a model was made, as plain JSON; its name where an argument is of the caller's own making."""
    try:
        return cast("dict[str, Any]", describe(model))
    except TypeError:
        return type(model).__name__


def digest(*arrays: np.ndarray | None) -> str:
    """A short hash of the data and their shapes, so that a checkpoint is not resumed on other data."""
    hasher = hashlib.sha256()
    for array in arrays:
        if array is None:
            hasher.update(b"None")
            continue
        array = np.ascontiguousarray(array)
        hasher.update(f"{array.shape} {array.dtype}".encode())
        hasher.update(array.tobytes())
    return hasher.hexdigest()[:16]


def write_run(
    path: str | os.PathLike[str],
    print_: str,
    finished: list[dict[str, Any]],
    under_way: dict[str, Any] | None,
) -> None:
    """Write the states of the runs that are done and of the one under way."""
    write(path, "checkpoint", {"fingerprint": print_}, {"finished": finished, "under_way": under_way})


def read_run(
    path: str | os.PathLike[str] | None, print_: str
) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """What `write_run` wrote; nothing if there is no such file.

    Raises
    ------
    ValueError
        The file belongs to another fit.
    """
    if path is None or not Path(path).exists():
        return [], None
    meta, tensors = read(path, "checkpoint")
    with explained("checkpoint", path):
        differs = differences(meta["fingerprint"], print_)
        finished, under_way = list(tensors["finished"]), tensors["under_way"]
        if not all(isinstance(state, dict) for state in [*finished, under_way or {}]):
            raise TypeError("its states are no dictionaries")
    if differs:
        raise ValueError(
            f"checkpoint: {str(path)!r} belongs to another fit ({differs}); "
            "remove the file or give another path"
        )
    return finished, under_way
