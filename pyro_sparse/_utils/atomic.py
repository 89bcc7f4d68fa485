"""Files that are written whole or not at all, and on reading say whether they are what was written.

The content is made in memory first. So a full disk is an error of ours with a message, not one inside a
library in C (HDF5 may end the process), and the digest is that of exactly the bytes that were meant.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
from contextlib import suppress
from pathlib import Path

__all__ = ["read_verified", "with_digest", "write_atomically"]

_MARK = b"\npyro_sparse sha256 "  # before the digest; readers of ZIP and HDF5 ignore what follows the end
_TRAILER = len(_MARK) + 64 + 1  # characters of a SHA-256 in hexadecimal, and a line feed
_ADVICE = {
    errno.ENOSPC: "make room, or give a path on another disk",
    errno.EDQUOT: "make room, or give a path on another disk",
    errno.EFBIG: "raise the limit on the size of files (ulimit -f), or give a path on another disk",
}


def write_atomically(path: str | os.PathLike[str], content: bytes, argument: str = "path") -> Path:
    """Write a file so that whoever reads it, whenever, finds the old content or the new one, both whole.

    A temporary file in the same folder is written, brought to the disk and renamed. One that a killed process
    left (".….part") may be deleted. Pipes and devices, which cannot be replaced, are written to directly.

    Parameters
    ----------
    path : path
        Of a file in a folder that exists. A symbolic link stays one: what it leads to is replaced.
    content : bytes
    argument : str
        What the message of an error calls the path.

    Returns
    -------
    Path

    Raises
    ------
    OSError
        Of the kind that the system gives, with the path and what to do. A file that was there before is
        untouched.
    """
    path = Path(path)
    target = Path(os.path.realpath(path))
    try:
        if target.exists() and not target.is_file():
            target.write_bytes(content)
        else:
            _replace(target, content)
    except OSError as error:
        advice = _ADVICE.get(error.errno or 0, "give a path that can be written")
        explained = type(error)(
            f"{argument}: {str(path)!r} could not be written ({error.strerror or error}); {advice}"
        )
        explained.errno = error.errno
        raise explained from error
    return path


def _replace(target: Path, content: bytes) -> None:
    # Its own name for every writer: two processes that write the same file must not share a temporary one.
    temporary = target.with_name(f".{secrets.token_hex(8)}.part")
    try:
        with open(temporary, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    with suppress(OSError):  # the renaming itself; not every file system can
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def with_digest(content: bytes) -> bytes:
    """The content, followed by a line with its SHA-256."""
    return content + _MARK + hashlib.sha256(content).hexdigest().encode() + b"\n"


def read_verified(path: str | os.PathLike[str], argument: str = "path") -> bytes:
    """What `with_digest` was given, of a file that holds all it returned and nothing else.

    Parameters
    ----------
    path : path
    argument : str
        What messages call it.

    Raises
    ------
    ValueError
        The file has no digest, or is not what was written.
    """
    whole = Path(path).read_bytes()
    content, trailer = whole[:-_TRAILER], whole[-_TRAILER:]
    if not trailer.startswith(_MARK):
        raise ValueError(
            f"{argument}: {str(path)!r} is not a pyro_sparse file, cut short, or of an earlier version: "
            "it does not end in a digest; give one that this version wrote, or make it again"
        )
    if with_digest(content) != whole:
        raise ValueError(
            f"{argument}: {str(path)!r} is not what was written (its SHA-256 differs), so that its numbers "
            "may be wrong; take another copy, or make it again"
        )
    return content
