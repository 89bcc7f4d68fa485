"""One door to files: a local path, or a checked download.

A file is either the caller's own (`path`), or fetched by pooch from `url` and checked against `known_hash`.
Nothing is ever downloaded without a checksum, and pooch is imported only when a download is asked for.
"""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["locate"]


def locate(
    name: str,
    path: str | os.PathLike[str] | None,
    *,
    url: str | None,
    known_hash: str | None,
    cache: str | os.PathLike[str] | None = None,
    unpack: tuple[str, ...] | None = None,
) -> Path | list[Path]:
    """Return the local path of a data file, downloading it if need be.

    Parameters
    ----------
    name : str
        Data set, for messages.
    path : path-like or None
        A local file or folder; then nothing is downloaded.
    url, known_hash : str or None
        Where to fetch it and its checksum, such as ``"sha256:..."`` or ``"md5:..."``.
    cache : path-like or None
        Folder for downloads; default ``$PYRO_SPARSE_DATA`` or the system's cache folder.
    unpack : tuple of str or None
        Members to take out of a zip archive; their paths are returned.

    Returns
    -------
    Path or list of Path
        The file, or the unpacked members.

    Raises
    ------
    FileNotFoundError
        If `path` does not exist.
    ValueError
        If there is no path and no url with a checksum.
    ImportError
        If a download is needed and pooch is not installed.
    """
    if path is not None:
        local = Path(path).expanduser()
        if not local.exists():
            raise FileNotFoundError(
                f"path={str(path)!r} for {name} does not exist; give the file you downloaded"
            )
        return local
    if url is None:
        raise ValueError(f"{name} has no single public file to fetch: give path=, a local copy")
    if known_hash is None:
        raise ValueError(
            f"{name} would be fetched from {url}, for which no checksum is known here: "
            "give path=, a local copy, or known_hash='sha256:...' of a copy you trust"
        )
    try:
        import pooch
    except ImportError as error:
        raise ImportError(
            f"downloading {name} needs pooch: pip install 'pyro-sparse[data]', or give path=, a local copy"
        ) from error
    folder = Path(cache or os.environ.get("PYRO_SPARSE_DATA") or pooch.os_cache("pyro_sparse"))
    processor = None if unpack is None else pooch.Unzip(members=list(unpack))
    retrieved = pooch.retrieve(url, known_hash=known_hash, path=folder, processor=processor)
    return [Path(f) for f in retrieved] if unpack is not None else Path(retrieved)
