"""Which restart is best, and how many factors each found: from rows' ELBOs and counts of edges.

All rows together say how many factors there are, by BIC; of the restarts with so many the held-out ELBO
chooses, and within its error simplicity: the one with the fewest edges.
"""

from __future__ import annotations

import numpy as np

__all__ = [
    "best_restart",
    "bic",
    "chosen_restart",
    "found_factors",
    "likeliest_restart",
]


def best_restart(rows: np.ndarray, active: np.ndarray, edges: np.ndarray) -> int:
    """The simplest restart that the rows cannot tell from the best one.

    Parameters
    ----------
    rows : ndarray (restart, row)
        ELBO of each row, held out if there are such rows.
    active, edges : ndarray (restart,)
        Factors and edges in use.

    Returns
    -------
    int
        Among restarts whose paired difference to the best is within one standard error, the one with the
        fewest factors, then edges, then the highest ELBO.
    """
    mean = np.where(np.isfinite(rows).all(1), rows.mean(1), -np.inf)
    top = int(mean.argmax())
    with np.errstate(invalid="ignore"):
        behind = rows[top] - rows
        error = behind.std(1, ddof=1) / np.sqrt(rows.shape[1]) if rows.shape[1] > 1 else np.zeros(len(rows))
    alike = [
        r for r in range(len(rows)) if r == top or (np.isfinite(mean[r]) and mean[top] - mean[r] <= error[r])
    ]
    return min(alike, key=lambda r: (active[r], edges[r], -mean[r]))


def likeliest_restart(rows: np.ndarray, edges: np.ndarray, n_rows: int) -> int:
    r"""The restart with the best Bayesian information criterion.

    .. math:: N \overline{\mathrm{ELBO}}_r - \tfrac12 e_r \log N

    Parameters
    ----------
    rows : ndarray (restart, row)
        ELBO of rows trained on, and of held-out ones; of a large table a sample.
    edges : ndarray (restart,)
        :math:`e_r`, edges in use.
    n_rows : int
        N, rows of the table.

    References
    ----------
    Schwarz (1978), Estimating the dimension of a model, Annals of Statistics 6(2)

    Examples
    --------
    >>> likeliest_restart(np.array([[-3.0, -3.2], [-2.7, -3.0], [-2.69, -3.0]]), np.array([4, 6, 9]), 200)
    1
    """
    return int(bic(rows, edges, n_rows).argmax())


def bic(rows: np.ndarray, edges: np.ndarray, n_rows: int) -> np.ndarray:
    """Bayesian information criterion of each restart as `likeliest_restart` has it: the higher the better.

    Parameters
    ----------
    rows : ndarray (restart, row)
    edges : ndarray (restart,)
    n_rows : int
    """
    level = np.where(np.isfinite(rows).all(1), n_rows * rows.mean(1), -np.inf)
    return np.asarray(level - 0.5 * edges * np.log(n_rows))


def chosen_restart(
    judged: np.ndarray, all_rows: np.ndarray, active: np.ndarray, edges: np.ndarray, n_rows: int
) -> int:
    """The restart that a fit goes by: as many factors as all rows pay for, then `best_restart`.

    Of a small table the held-out tenth says little: restarts that it calls alike can be a factor apart, and
    fifty nats over all rows. Restarts with as many factors differ by less than what rows trained on flatter.

    Parameters
    ----------
    judged : ndarray (restart, row)
        ELBO of each row, held out if there are such rows.
    all_rows : ndarray (restart, row)
        Of rows trained on, and held out: see `likeliest_restart`.
    active, edges : ndarray (restart,)
        Factors and edges in use.
    n_rows : int
    """
    alike = np.flatnonzero(active == active[likeliest_restart(all_rows, edges, n_rows)])
    return int(alike[best_restart(judged[alike], active[alike], edges[alike])])


def found_factors(edge: np.ndarray, prescribed: np.ndarray) -> np.ndarray:
    """How many factors each restart found: those with an edge beyond the prescribed ones.

    Parameters
    ----------
    edge : ndarray of bool (restart, feature, factor)
    prescribed : ndarray of bool
        As `prescribed_edges`, or for each restart in its own order of factors.
    """
    return np.asarray((edge & ~prescribed).any(1).sum(1))
