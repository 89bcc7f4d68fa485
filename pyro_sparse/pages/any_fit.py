"""The page of any fit: which one its kind has, of which edges, and what each can be asked for."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, cast

from .._utils.quiet import ignored
from .._utils.torch_state import isolated
from ..inference.autoencoders.pair_result import AutoencoderFit
from ..inference.observed.observed_result import ObservedFit
from ..inference.program.result import ProgramFit
from ..posterior.salience import SALIENT
from ..posterior.same_fit import check_labels
from .of_latents import write_latents
from .of_observed import write_observed
from .of_program import write_program
from .of_table import write_table
from .page import need_libraries, page_to_write

if TYPE_CHECKING:
    from .._utils.types import ArvizData, TableLike
    from ..graphs.venn import Groups
    from ..inference.multitask.task_result import MultiTaskFit
    from ..inference.table.result import Fit
    from ..inference.transition.transition_result import TransitionFit

__all__ = ["report"]


@isolated()
def report(
    fit: Fit | ProgramFit | TransitionFit | ObservedFit | MultiTaskFit,
    path: str | os.PathLike[str],
    X: TableLike | None = None,
    fdr: float = 0.1,
    *,
    idata: ArvizData | None = None,
    groups: Groups | None = None,
    salient: float = SALIENT,
    salient_only: bool = False,
) -> Path:
    """Write a fit as one HTML file that needs nothing else, and return its path.

    Parameters
    ----------
    fit : Fit, ProgramFit, TransitionFit, ObservedFit or MultiTaskFit
        Of a table, a program, of sequences or of tasks; the pages of latents say what they allow, that of
        observed variables how they go on, and that of a program all its numbers and how they were drawn.
    path : path
        File to write; its folder is made where there is none.
    X : array_like of shape (sample, feature), optional
        The data, for the posterior predictive check, left out without it; and for the edges of a loaded
        fit, which holds none.
    fdr : float
        Bayesian false-discovery rate at which edges are selected, in [0, 1].
    idata : InferenceData or DataTree, optional
        Result of `fit.edge_posterior(...)`. Default: `fit.edge_posterior()`, of X if
        the fit was loaded.
    groups : mapping of name to features, optional
        Groups of features of which to draw what they share (`plot_sets`). Default: which features share
        factors.
    salient : float
        Size of a standardised loading, as for `summary`.
    salient_only : bool
        Name and draw only edges whose standardised loading is at least so large (`salient_edges`).

    Returns
    -------
    Path

    Raises
    ------
    ImportError
        If matplotlib or jinja2 is missing; both come with `pyro-sparse[plots,cli]`.
    IsADirectoryError
        If `path` is a folder.
    NotImplementedError
        Of an `AutoencoderFit`.
    TypeError
        If fit and path are in the other order, `idata` is of another kind of fit, or X, `groups`, `salient`
        or `salient_only` come with one that is not a table's.
    ValueError
        If `path` ends in something else than .html or .htm, the features or factors of `idata` have other
        names than the fit's, or another order, or `salient` is out of range or asked of edges without draws
        of loadings.
    """
    if isinstance(fit, AutoencoderFit):  # which says what to read instead
        return fit.report(path)
    path = page_to_write(fit, path)
    need_libraries()
    of_program = isinstance(fit, ProgramFit)
    if of_program or not hasattr(fit, "factor_names"):
        beside = {"X": X is not None, "groups": groups is not None, "salient": salient != SALIENT}
        misplaced = [name for name, given in {**beside, "salient_only": salient_only}.items() if given]
        if misplaced:
            raise TypeError(
                f"{misplaced[0]}: is for a table's fit, not for a {type(fit).__name__}; leave it out"
            )
        idata = fit.edge_posterior() if idata is None else idata
        check_labels(fit, idata)
        if of_program:
            return write_program(cast("ProgramFit", fit), path, idata, fdr)
        if isinstance(fit, ObservedFit):
            return write_observed(fit, path, idata, fdr)
        return write_latents(cast("TransitionFit | MultiTaskFit", fit), path, idata, fdr)
    fit = cast("Fit", fit)
    idata = _edges(fit, X) if idata is None else idata
    return write_table(fit, path, idata, X, fdr, groups=groups, salient=salient, salient_only=salient_only)


def _edges(fit: Fit, X: TableLike | None) -> ArvizData:
    """Edges of the fit, of X where it holds no data of its own."""
    if X is None or fit.table is None or len(fit.table.x):
        return fit.edge_posterior()
    with ignored(".*; of no use to .*: X$", RuntimeWarning):  # a fit whose edges are scores all the same
        return fit.edge_posterior(X=X)
