"""Where results are written: a file that can be written, in a folder that is made where there is none."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["file_to_write"]


def file_to_write(path: str | os.PathLike[str], example: str, argument: str = "path") -> Path:
    """A path as given, its folder made where it is absent.

    Raises
    ------
    IsADirectoryError
        If it is a folder; the message names `example`, a file in it.
    OSError
        If its folder cannot be made.
    """
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(
            f"{argument}: {str(path)!r} is a folder; give a file to write, such as {str(path / example)!r}"
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(
            f"{argument}: {str(path.parent)!r} cannot be made a folder ({error.strerror}); give another one"
        ) from error
    return path
