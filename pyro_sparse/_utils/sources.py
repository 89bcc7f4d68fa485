"""What is looked at before a library in C reads a file or unpacks a matrix: damage, sizes, kinds.

Libraries trust what a file says of itself, and some end the process when it is wrong. Every complaint here
comes before memory is taken.
"""

from __future__ import annotations

import os
import stat
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pandas.io.common import get_handle

if TYPE_CHECKING:
    import h5py
    import scipy.sparse

__all__ = [
    "check_archive",
    "check_dense",
    "check_expanded",
    "check_file",
    "check_hdf5",
    "check_sparse",
    "check_text",
    "memory_limit",
    "reading",
]

# A file that expands so much, and to so much, is taken for one made to fill the memory. Deflate cannot do
# more than 1,032; tables of counts of which 99 % are zero come to 200.
_BOMB_RATIO = 250
_BOMB_BYTES = 2**30
_CHUNK = 2**20  # bytes of a text looked at before the next: one that unpacks to too much is stopped early
_SOME_MEMORY = 16e9  # bytes, where the system does not say how much there is


def memory_limit() -> float:
    """Bytes that one dense table may take: half of what the machine, or this process's control group, has."""
    sizes = []
    with suppress(AttributeError, OSError, ValueError):
        sizes.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    with suppress(OSError, ValueError):
        sizes.append(int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return min(sizes, default=_SOME_MEMORY) / 2


def check_file(path: Path, argument: str, kinds: str, folders: bool = False) -> None:
    """Complain of what is no file with something in it.

    Parameters
    ----------
    path : Path
    argument : str
        What messages call it.
    kinds : str
        What kinds of files there are.
    folders : bool
        Whether a folder will do (.zarr).

    Raises
    ------
    FileNotFoundError
        Nothing is there, or a folder.
    ValueError
        A pipe, a device, an empty file.
    """
    wanted = f"give a {kinds} file"
    if not path.exists():
        raise FileNotFoundError(f"{argument}: there is no file {str(path)!r}; {wanted}")
    if path.is_dir():
        if folders:
            return
        raise FileNotFoundError(f"{argument}: {str(path)!r} is a folder; {wanted}")
    about = path.stat()
    if not stat.S_ISREG(about.st_mode):
        kind = "pipe" if stat.S_ISFIFO(about.st_mode) else "device or socket"
        raise ValueError(
            f"{argument}: {str(path)!r} is a {kind}, and a table is read more than once; "
            "write it to a file first"
        )
    if about.st_size == 0:
        raise ValueError(f"{argument}: {str(path)!r} is empty (0 bytes); {wanted} with a table in it")


@contextmanager
def reading(path: Path, kind: str, argument: str = "path") -> Iterator[None]:
    """Say of whatever a library complains of that this file cannot be read; what it says is in the message.

    Parameters
    ----------
    path : Path
    kind : str
        Such as ".npz".
    argument : str

    Raises
    ------
    ValueError
        In place of what was raised inside, but for missing libraries and complaints that name an argument.
    """
    try:
        yield
    except (ImportError, NotImplementedError):
        raise
    except MemoryError as error:
        raise ValueError(
            f"{argument}: {str(path)!r} says that it holds more than fits into memory ({error}); "
            "is it damaged?"
        ) from error
    except Exception as error:
        text = str(error)
        named = (f"{argument}:", "X:", "columns:", "layer:", "sep:", "sheet:")
        if isinstance(error, ValueError | TypeError | FileNotFoundError) and text.startswith(named):
            raise
        complaint = f"{type(error).__name__}: {text.splitlines()[0][:200]}" if text else type(error).__name__
        raise ValueError(
            f"{argument}: {str(path)!r} cannot be read as {kind} ({complaint}); "
            "is the file complete, and is it of the type that its name says?"
        ) from error


def check_expanded(path: Path, expanded: float) -> None:
    """Complain of a file that would take more memory than there is, or that was made to do so.

    Parameters
    ----------
    path : Path
    expanded : float
        Bytes, when it is unpacked.
    """
    if expanded > memory_limit():
        raise ValueError(
            f"path: {str(path)!r} unpacks to {_gigabytes(expanded)} or more, and a table may take "
            f"half of the memory, {_gigabytes(memory_limit())}; give fewer rows or columns"
        )
    ratio = expanded / max(path.stat().st_size, 1)
    if expanded > _BOMB_BYTES and ratio > _BOMB_RATIO:
        raise ValueError(
            f"path: {str(path)!r} unpacks to {_gigabytes(expanded)} or more, over {_BOMB_RATIO} times "
            "its size, as files do that are made to fill the memory; if you trust it, unpack it yourself"
        )


def check_archive(path: Path, archive: zipfile.ZipFile) -> None:
    """Complain of a ZIP archive that unpacks to too much; zipfile gives no more of a member than it says.

    Parameters
    ----------
    path : Path
    archive : ZipFile
    """
    check_expanded(path, sum(member.file_size for member in archive.infolist()))


def check_hdf5(path: Path, file: h5py.File) -> None:
    """Complain of an HDF5 file whose arrays would take too much memory, or an X that is too large when dense.

    Parameters
    ----------
    path : Path
    file : h5py.File
    """
    sizes: list[int] = []

    def add(_: str, node: h5py.Group | h5py.Dataset) -> None:
        if hasattr(node, "dtype") and node.size:
            sizes.append(node.size * node.dtype.itemsize)

    file.visititems(add)
    check_expanded(path, sum(sizes))
    x = file.get("X")
    shape = getattr(x, "shape", None) or getattr(x, "attrs", {}).get("shape")
    if shape is not None and len(shape) == 2:
        check_dense((int(shape[0]), int(shape[1])), f"path: X in {str(path)!r}")


def check_dense(shape: tuple[int, ...], name: str = "X") -> None:
    """Complain of a table that has no room in memory as a dense array of float64.

    Parameters
    ----------
    shape : (int, int)
    name : str
        What the message calls it.
    """
    needed = 8.0 * shape[0] * shape[1]
    if needed > memory_limit():
        raise ValueError(
            f"{name}: as a dense table of {shape[0]} x {shape[1]} cells it would take {_gigabytes(needed)}, "
            f"and one may take half of the memory, {_gigabytes(memory_limit())}; give fewer columns or rows, "
            "or in Python pyro_sparse.open_rows, which reads by rows"
        )


def check_sparse(matrix: scipy.sparse.spmatrix | scipy.sparse.sparray, name: str = "X") -> None:
    """Complain of a sparse matrix whose indices lead outside of it, before code in C follows them.

    Parameters
    ----------
    matrix : scipy.sparse matrix or array
    name : str
    """
    try:
        if hasattr(matrix, "check_format"):  # CSR, CSC, BSR
            matrix.check_format(full_check=True)
        elif matrix.format == "coo" and matrix.nnz:
            for axis, index in zip("row column".split(), (matrix.row, matrix.col), strict=True):
                length = matrix.shape[axis == "column"]
                if index.min() < 0 or index.max() >= length:
                    raise ValueError(f"{axis} index outside of 0 to {length - 1}")
    except (ValueError, IndexError) as error:
        raise ValueError(
            f"{name}: is a damaged sparse matrix ({error}); its indices do not fit its shape, "
            "so make it again"
        ) from error


def check_text(path: Path, encoding: str | None = None) -> None:
    """Complain of text that holds NUL bytes, unpacks to too much, or is compressed and damaged.

    NUL bytes end a number in C, so that a reader makes 1 of "1\\x0023" without a word.

    Parameters
    ----------
    path : Path
        Of text, maybe compressed.
    encoding : str, optional
        Default UTF-8 or one of its kin. In UTF-16 and UTF-32 every other byte may be NUL; there it is the
        character that is looked for.
    """
    size, line = 0, 1
    wide = encoding is not None and "\0".encode(encoding)[-2:] == b"\0\0"
    with get_handle(path, "rb", compression="infer", is_text=False) as opened:
        while chunk := opened.handle.read(_CHUNK):
            if size == 0 and encoding is None and chunk.startswith((b"\xff\xfe", b"\xfe\xff")):
                return  # UTF-16, of which the reader says so
            at = -1 if wide else chunk.find(b"\0")
            if at >= 0:
                line += chunk.count(b"\n", 0, at)
                raise ValueError(
                    f"path: {path.name!r} has a NUL byte in line {line}, so that it is damaged or no UTF-8 "
                    "text; write it again ('CSV UTF-8' in a spreadsheet), or say encoding='utf-16-le' if it "
                    "is that"
                )
            size, line = size + len(chunk), line + chunk.count(b"\n")
            check_expanded(path, size)
    if wide:
        with get_handle(path, "r", compression="infer", encoding=encoding) as opened:
            while text := opened.handle.read(_CHUNK):
                if "\0" in text:
                    raise ValueError(
                        f"path: {path.name!r} has a NUL character, so that it is damaged or no {encoding} "
                        "text; write it again ('CSV UTF-8' in a spreadsheet)"
                    )


def _gigabytes(size: float) -> str:
    return f"{size / 1e9:,.1f} GB"
