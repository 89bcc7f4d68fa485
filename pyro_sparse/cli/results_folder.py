"""The folder a fit writes to: whether it may and can, that nobody else does, what a later start finds."""

from __future__ import annotations

import importlib.util
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

import filelock
import typer

from .options import INTERRUPTED
from .printing import say

__all__ = ["CHECKPOINT", "absent_for_report", "refuse_results", "resumable", "results_folder"]

CHECKPOINT = "checkpoint.pt"  # in --out while a fit is trained, for --resume
_FILES = ("model.pt", "edges.csv", "factors.csv", "report.html", "idata.nc")  # what `recipe.finish` writes


def refuse_results(out: Path, force: bool, resume: bool) -> None:
    """Complain of results of an earlier fit that a new one would overwrite, or of nothing to go on with.

    Parameters
    ----------
    out : Path
    force : bool
        Overwrite; a fit that was interrupted is then begun anew.
    resume : bool
        Go on with a fit that was interrupted.

    Raises
    ------
    ValueError
        There are some, and nobody said that they may go.
    """
    if force and resume:
        raise ValueError("--resume: goes on with a fit, and --force begins it anew; leave one of them out")
    there = [name for name in _FILES if (out / name).is_file()]
    begun = (out / CHECKPOINT).is_file()
    if force:
        return
    if begun and not resume:
        raise ValueError(
            f"--out: {str(out)!r} holds a fit that was interrupted; go on with it (--resume), begin anew "
            "(--force), or give another folder"
        )
    if there and resume and not begun:
        raise ValueError(
            f"--resume: {str(out)!r} holds results and nothing to go on from: the fit has ended, or was "
            "stopped at once; fit anew with --force, or give another folder"
        )
    if there and not begun:
        raise ValueError(
            f"--out: {str(out)!r} holds the results of an earlier fit ({', '.join(there)}); overwrite them "
            "(--force), or give another folder"
        )


@contextmanager
def results_folder(out: Path, alone: bool = True) -> Iterator[None]:
    """Make the folder for what a fit gives and see that it can be written, before there is anything to lose.

    If what is done in it fails, it is taken away again where it was made here and is empty.

    Parameters
    ----------
    out : Path
    alone : bool
        Refuse a folder to which another process writes now; restarts of one fit share theirs.
    """
    made = [path for path in (out, *out.parents) if not path.exists()]
    try:
        try:
            out.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=out):
                pass
        except OSError as error:
            reason = "it is a file" if out.is_file() else error.strerror
            raise ValueError(
                f"--out: {str(out)!r} cannot be a folder for the results ({reason}); give another one"
            ) from error
        _check_files(out)
        with _locked(out) if alone else nullcontext():
            yield
    except BaseException:
        with suppress(OSError):
            for path in made:
                path.rmdir()
        raise


@contextmanager
def _locked(out: Path) -> Iterator[None]:
    """Hold the folder's lock: two fits in one folder would leave the model of one with edges of the other."""
    lock = filelock.FileLock(out / ".pyro-sparse.lock")
    try:
        lock.acquire(blocking=False)
    except filelock.Timeout as error:
        raise ValueError(
            f"--out: another pyro-sparse writes to {str(out)!r} now; wait for it, or give another folder"
        ) from error
    except (NotImplementedError, OSError):  # a file system without locks
        yield
        return
    try:
        yield
    finally:
        with suppress(OSError):  # while it is held: who waits for it makes a new one
            Path(lock.lock_file).unlink()
        lock.release()


def _check_files(out: Path) -> None:
    """See that each result can be written, with the libraries that are installed; say which one cannot."""
    from ..posterior.arviz import try_netcdf

    for name in _FILES:
        path = out / name
        if path.is_dir() or path.exists() and not os.access(path, os.W_OK):
            reason = "a folder" if path.is_dir() else "write-protected"
            raise ValueError(
                f"--out: {str(path)!r}, where a result is to be written, is {reason}; "
                "remove it or give another folder"
            )
    try:
        try_netcdf(out)
    except (ImportError, OSError, ValueError) as error:
        raise ValueError(
            f"--out: NetCDF files such as idata.nc cannot be written to {str(out)!r} ({error}); "
            "where the libraries are at fault, run: pip install --upgrade h5netcdf h5py"
        ) from error
    if absent := absent_for_report():
        say(f"there will be no report: it needs {' and '.join(absent)}; pip install 'pyro-sparse[plots,cli]'")


def absent_for_report() -> list[str]:
    """Packages that a report needs and that are not installed."""
    return [name for name in ("matplotlib", "jinja2") if importlib.util.find_spec(name) is None]


@contextmanager
def resumable(out: Path, checkpoint: Path | None, begin_anew: bool) -> Iterator[None]:
    """Keep the checkpoint of what is done inside if it is interrupted, and say how to go on; else remove it.

    Parameters
    ----------
    out : Path
    checkpoint : Path or None
        None: nothing is written before the end.
    begin_anew : bool
        Remove one that is there.
    """
    if checkpoint is None:
        yield
        return
    if begin_anew:
        checkpoint.unlink(missing_ok=True)
    go_on = f"the same command with --resume goes on with the fit in {str(out)!r}"
    try:
        yield
    except typer.Exit as end:
        if end.exit_code == INTERRUPTED and checkpoint.is_file():
            say(go_on)
        else:
            checkpoint.unlink(missing_ok=True)
        raise
    except KeyboardInterrupt:
        say(
            f"interrupted; {go_on}"
            if checkpoint.is_file()
            else "interrupted before there was anything to keep"
        )
        raise typer.Exit(INTERRUPTED) from None
    checkpoint.unlink(missing_ok=True)
