"""Restarts: their seeds, how many share a pass, how their parameters are joined and brought into one frame.

Seeds are children of one seed, keyed by the restart's number. Small models train all restarts in one pass (a
leading dimension of every parameter); large ones in groups that fit in memory.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, TypeVar, cast

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment

from ..._utils.torch_state import first_rows, undisturbed
from ...graphs.alignment import Alignment, align, orient

if TYPE_CHECKING:
    from ...data.table import Batch
    from ...models.base import FactorModel
    from ...models.dependency import DependencyVAE
    from ...models.latent_transition import LatentTransition
    from ...models.sparse_decoder import SparseDecoder
    from .fit_result import FitResult

__all__ = [
    "align_factors",
    "align_latents",
    "bent_starts",
    "child_seeds",
    "group_sizes",
    "in_frame",
    "join",
    "out_of_frame",
    "pick",
    "put",
    "score_similarity",
]

ModelT = TypeVar("ModelT", bound="FactorModel | LatentTransition")

GROUP_BYTES = 400e6
_MOST_ROWS = 2000  # whose factors are compared between restarts


def child_seeds(seed: int, n_restarts: int) -> list[int]:
    """One seed per restart, keyed by its number: restart 3 has the same seed however many there are.

    >>> child_seeds(0, 2) == child_seeds(0, 5)[:2]
    True
    """
    children = np.random.SeedSequence(seed).spawn(n_restarts)
    return [int(child.generate_state(1, np.uint64)[0]) >> 1 for child in children]


def bent_starts(n_factors_init: np.ndarray) -> np.ndarray:
    """Which restarts begin as random curves: every second one.

    They alternate among restarts with the same number of factors, and along the grid of numbers too, so that
    one pass over it has both kinds.

    Parameters
    ----------
    n_factors_init : ndarray of int (restart,)
        Number of factors each restart begins with.

    Returns
    -------
    ndarray of bool (restart,)

    Examples
    --------
    >>> bent_starts(np.array([3, 2, 1, 3, 2, 1])).tolist()
    [False, True, False, True, False, True]
    """
    n_factors_init = np.asarray(n_factors_init)
    turn = [int((n_factors_init[:r] == c).sum()) for r, c in enumerate(n_factors_init)]
    place = {c: i for i, c in enumerate(dict.fromkeys(n_factors_init.tolist()))}
    return np.array([(place[c] + t) % 2 == 1 for c, t in zip(n_factors_init.tolist(), turn, strict=True)])


def group_sizes(model: FactorModel, n_restarts: int, batch_size: int) -> list[int]:
    """How many restarts share each pass: all, unless the activations of a step would exceed 400 MB."""
    hidden = max(getattr(model, "hidden", 1), model.n_factors)
    bytes_each = 4.0 * 4 * batch_size * model.n_features * hidden
    together = int(max(1, min(n_restarts, GROUP_BYTES // bytes_each)))
    return [min(together, n_restarts - at) for at in range(0, n_restarts, together)]


def join(states: list[dict[str, torch.Tensor]], whole: ModelT) -> ModelT:
    """Write the parameters of several groups into one model set up for all restarts.

    Parameters
    ----------
    states : list of dict of str to Tensor
        What the groups' ``state_dict`` say, in order of their restarts.
    whole : FactorModel
        Set up with as many restarts as all parts have together; returned.
    """
    batched = _batched(whole)
    joined = {
        name: torch.cat([s[name] for s in states], 0) if name in batched else states[0][name]
        for name in states[0]
    }
    whole.load_state_dict(joined)
    return whole


def pick(model: ModelT, restarts: list[int]) -> ModelT:
    """A copy of the model with these restarts only: what is asked of one need not be computed for all.

    Parameters
    ----------
    model : FactorModel
        Trained.
    restarts : list of int
        Which of its restarts, in the order wanted.
    """
    few = _resized(model, len(restarts))
    batched = _batched(model, few if few.n_restarts != model.n_restarts else None)
    states = model.state_dict().items()
    few.load_state_dict({name: value[restarts] if name in batched else value for name, value in states})
    return cast("ModelT", few.eval())


def put(single: ModelT, model: ModelT, restart: int) -> None:
    """Write a model of a single restart over one restart of another, in place.

    Parameters
    ----------
    single : FactorModel
        As from `pick`.
    model : FactorModel
    restart : int
    """
    state, batched = single.state_dict(), _batched(model)
    with torch.no_grad():
        for name, value in model.state_dict().items():
            if name in batched:
                value[restart].copy_(state[name][0])


def _batched(
    model: FactorModel | LatentTransition, other: FactorModel | LatentTransition | None = None
) -> set[str]:
    """Names of the tensors with a restart dimension: those that change shape with the number of restarts.

    `other` is the same model with another number of them, if there is one already.
    """
    other = _resized(model, model.n_restarts + 1) if other is None else other
    shapes = {name: value.shape for name, value in other.state_dict().items()}
    return {name for name, value in model.state_dict().items() if value.shape != shapes[name]}


def _resized(model: ModelT, n_restarts: int) -> ModelT:
    resized = copy.deepcopy(model).cpu()  # where `setup` makes new tensors, beside buffers that it keeps
    with undisturbed():
        resized.setup(
            n_restarts=n_restarts,
            n_samples=model.n_samples,
            missing=model.missing,
            feature_names=model.feature_names,
        )
    return cast("ModelT", resized.to(next(model.parameters())))


def in_frame(fit: FitResult, values: np.ndarray) -> np.ndarray:
    """Values of the best restart's own factors in the order and with the signs in which the fit shows them.

    Parameters
    ----------
    fit : Fit, TransitionFit or MultiTaskFit
    values : ndarray (..., factor)
    """
    return values[..., fit.alignment["permutation"][fit.best]] * fit.alignment["sign"][fit.best]


def out_of_frame(fit: FitResult, values: np.ndarray) -> np.ndarray:
    """Values of factors as the fit shows them in the best restart's own order and signs.

    Parameters
    ----------
    fit : Fit, TransitionFit or MultiTaskFit
    values : ndarray (..., factor)
    """
    in_model_order = np.zeros_like(values)
    in_model_order[..., fit.alignment["permutation"][fit.best]] = values * fit.alignment["sign"][fit.best]
    return in_model_order


def align_factors(model: FactorModel, loadings: np.ndarray, effects: np.ndarray, best: int) -> Alignment:
    """All restarts in the best one's frame, largest factor first.

    A factor that constraints tell from the others keeps its number.

    Parameters
    ----------
    model : FactorModel
        Says which factors can change places: all, if it has no weights.
    loadings : ndarray (restart, feature, factor)
    effects : ndarray (feature, factor)
        Of the best restart.
    best : int
    """
    r, _, k = loadings.shape
    weights = getattr(model, "weights", None)
    permutation, sign, congruence = np.zeros((r, k), dtype=np.intp), np.ones((r, k)), np.zeros((r, k))
    for members in (
        [np.arange(k)] if weights is None else cast("SparseDecoder | DependencyVAE", model).alike_factors()
    ):
        order = members[np.argsort(-effects[:, members].sum(0), kind="stable")]
        pivot = loadings[best][:, order] * orient(loadings[best][:, order])
        alignment = align(loadings[:, :, members], pivot=pivot)
        permutation[:, members] = members[alignment.permutation]
        sign[:, members], congruence[:, members] = alignment.sign, alignment.congruence
    return Alignment(permutation, sign, congruence)


@torch.no_grad()
def score_similarity(model: FactorModel, batch: Batch, present: np.ndarray, best: int) -> np.ndarray:
    """Largest correlation of each of the best restart's factors with a used factor of every restart.

    Where features are even in a factor the signs of their mean slopes are noise, and loadings of one and the
    same factor do not agree between restarts; its scores do.

    Parameters
    ----------
    model : FactorModel
    batch : Batch
        At most 2,000 of its rows are looked at.
    present : ndarray of bool (restart, feature, factor)
    best : int

    Returns
    -------
    ndarray (restart, factor)
        In the best restart's own order; 0 where a restart has no factor.
    """
    location, _ = model.encode(first_rows(batch, _MOST_ROWS))
    z = location.cpu().double()
    z = z - z.mean(1, keepdim=True)
    z = z / z.square().sum(1, keepdim=True).sqrt().clamp_min(1e-12)
    between = (z[best].mT @ z).abs().numpy()  # (restart, factor of the best, factor)
    used = np.asarray(present.any(1), dtype=bool)
    return np.asarray(np.where(used[:, None], between, 0.0).max(2))


def align_latents(frames: np.ndarray, best: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Order and sign of each restart's latents that suit the best one's, and how similar they are.

    Parameters
    ----------
    frames : ndarray (restart, row, latent)
        Latents of the same rows.
    best : int
        The restart whose order and signs the others take.

    Returns
    -------
    permutation : ndarray of int (restart, latent)
    sign : ndarray (restart, latent)
    similarity : ndarray (restart, latent)
        Absolute correlation with the best restart's latent; 0 where one of them is constant.
    """
    r, _, d = frames.shape
    permutation, sign, similarity = np.zeros((r, d), int), np.ones((r, d)), np.zeros((r, d))
    for i in range(r):
        with np.errstate(invalid="ignore", divide="ignore"):  # a latent may be constant
            between = np.corrcoef(frames[best], frames[i], rowvar=False)[:d, d:].reshape(d, d)
        between = np.nan_to_num(between)
        permutation[i] = linear_sum_assignment(-np.abs(between))[1]
        taken = between[np.arange(d), permutation[i]]
        sign[i] = np.where(taken < 0, -1.0, 1.0)
        similarity[i] = np.abs(taken)
    return permutation, sign, similarity
