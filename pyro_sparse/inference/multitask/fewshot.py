r"""Few-shot learning: a network whose features serve every episode, and a head that is fitted to each.

.. math:: \min_\theta \; \mathrm{mean}_{e} \; \frac{1}{|Q_e|} \sum_{(q, y) \in Q_e}
          -\log \mathrm{softmax}\bigl(\tau \, h_e(f_\theta(q))\bigr)_y, \qquad
          h_e = \mathrm{head}\bigl(f_\theta(\mathrm{support}_e)\bigr)

The head is solved exactly and differentiated through (`inner/`), the temperature :math:`\tau` is learned. An
episode's features are standardised by its own support, so that no head needs an intercept and a group penalty
cannot be dodged by making a feature large.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from scipy import stats
from torch import Tensor, nn
from tqdm import tqdm

from ..._utils.torch_state import undisturbed
from ..training.interrupt import stopped_between_steps
from .episode_batches import EpisodeLike, batches, endless
from .inner.heads import Head, get_head

__all__ = ["FewShot", "FewShotScore", "standardise"]

_SHRINKAGE = 0.1  # of the mean variance: see `standardise`


class FewShotScore(NamedTuple):
    """What `FewShot.evaluate` returns.

    Attributes
    ----------
    accuracy : float
        Mean share of queries classified correctly.
    interval : tuple of float
        95 % interval of the mean over episodes (Student's t).
    features_used : float
        Mean share of the features with a nonzero weight in an episode.
    features_ever : float
        Share of the features used in any episode.
    usage : DataFrame
        ``feature``, ``usage`` (share of the episodes that use it) and ``weight`` (mean norm of its weights
        where it is used, NaN where it never is), most used first.
    gap_max : float
        Largest relative duality gap of any episode's head.
    by_episode : ndarray (episode,)
        Accuracy of each episode, for paired comparisons.
    """

    accuracy: float
    interval: tuple[float, float]
    features_used: float
    features_ever: float
    usage: pd.DataFrame
    gap_max: float
    by_episode: np.ndarray


def standardise(support: Tensor, query: Tensor) -> tuple[Tensor, Tensor]:
    r"""Features of an episode in units of its support, :math:`(f_j - m_j) / (s_j^2 + 0.1 \bar{s^2})^{1/2}`.

    A tenth of the mean variance over features keeps one that hardly varies in a small support from being
    blown up. The query takes no part: its examples are classified one by one.

    Parameters
    ----------
    support, query : Tensor (..., example, feature)

    Returns
    -------
    Tensor (..., example, feature), Tensor (..., query, feature)
    """
    mean, variance = support.mean(-2, keepdim=True), support.var(-2, correction=0, keepdim=True)
    # The last term is for features that are all dead.
    floor = _SHRINKAGE * variance.mean(-1, keepdim=True) + torch.finfo(variance.dtype).eps ** 2
    scale = (variance + floor).rsqrt()
    return (support - mean) * scale, (query - mean) * scale


class FewShot(nn.Module):
    r"""A network trained on episodes so that a head fitted to the support of each classifies its queries.

    Parameters
    ----------
    network : Module
        Maps inputs (row, ...) to features (row, feature); what it returns is flattened. Trained in place.
    head : str or Head
        "group_svm", "dense_svm", "ridge", "prototype", or a `Head` with settings of its own.

    Attributes
    ----------
    log_temperature : Parameter
        Logarithm of :math:`\tau`, which begins at 1.
    history : DataFrame
        ``step``, ``loss`` (nats per query), ``accuracy`` and ``features_used`` of each step's episodes.
    notes : list of str
        What a reader of the fit should know: that it was interrupted.

    Notes
    -----
    Episodes are tuples ``(support_x, support_y, query_x, query_y)`` of arrays or tensors: inputs (n, ...) and
    labels (n,), 0 to ways - 1, of one episode, or both with a leading dimension for a batch of them.

    Examples
    --------
    >>> from torch import nn
    >>> x, y = torch.randn(4, 6, 3), torch.arange(6).remainder(2).expand(4, 6)
    >>> x = x + 3 * y[..., None]
    >>> learner = FewShot(nn.Linear(3, 5), head="ridge").fit([(x, y, x, y)], steps=2, progress=False)
    >>> learner.evaluate([(x, y, x, y)]).usage.shape
    (5, 3)
    """

    def __init__(self, network: nn.Module, head: str | Head = "group_svm") -> None:
        super().__init__()
        self.network = network
        self.head = get_head(head)
        self.log_temperature = nn.Parameter(torch.zeros(()))
        self.history = pd.DataFrame(columns=["step", "loss", "accuracy", "features_used"])
        self.notes: list[str] = []

    def fit(
        self,
        episodes: Iterable[EpisodeLike] | Callable[[], EpisodeLike],
        *,
        steps: int = 500,
        episodes_per_step: int = 4,
        learning_rate: float = 1e-3,
        seed: int = 0,
        progress: bool = True,
    ) -> FewShot:
        """Train the network and the temperature with Adam; Ctrl-C returns what is there.

        Parameters
        ----------
        episodes : iterable, or callable without arguments
            Gives episodes, see Notes of the class. An iterable that ends is begun again.
        steps : int
            Updates.
        episodes_per_step : int
            How many single episodes share an update; a batch is taken as it is.
        learning_rate : float
            Adam's step size; it falls to zero along a cosine.
        seed : int
            Of what is random in the network's training (dropout); the episodes have a seed of their own.
        progress : bool
            Whether to show a bar.

        Returns
        -------
        FewShot
            Itself.

        Raises
        ------
        ValueError
            No episode, or one of wrong shapes.
        FloatingPointError
            The loss is not finite.
        """
        if steps < 1 or episodes_per_step < 1:
            raise ValueError(
                f"steps, episodes_per_step: got {steps} and {episodes_per_step}, wanted at least 1 of each"
            )
        optimiser = torch.optim.Adam([self.log_temperature], lr=10 * learning_rate)  # one number, far to go
        optimiser.add_param_group({"params": list(self.network.parameters()), "lr": learning_rate})
        falling = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
        rows: list[dict[str, float]] = []
        bar = tqdm(total=steps, disable=not progress, unit="step")
        self.train()
        try:
            with undisturbed(seed), stopped_between_steps(lambda row: _show(bar, row)) as between:
                for batch in batches(endless(episodes), episodes_per_step):
                    loss, row = self._loss(batch)
                    if not torch.isfinite(loss):
                        raise FloatingPointError(
                            f"step {len(rows)}: the loss is {float(loss.detach())}; lower learning_rate, or "
                            "look for extreme values in the episodes"
                        )
                    optimiser.zero_grad()
                    loss.backward()
                    optimiser.step()
                    falling.step()
                    rows.append({"step": len(rows) + 1, "loss": float(loss.detach()), **row})
                    between(rows[-1])
                    if len(rows) == steps:
                        break
        except KeyboardInterrupt:
            self.notes.append(f"interrupted at step {len(rows)} of {steps}")
        finally:
            bar.close()
            self.history = pd.DataFrame(rows, columns=list(self.history.columns))
            self.eval()
        return self

    def evaluate(
        self, episodes: Iterable[EpisodeLike], n_episodes: int | None = None, batch_size: int = 16
    ) -> FewShotScore:
        """Accuracy on new episodes, and which features their heads use.

        Parameters
        ----------
        episodes : iterable
            As in `fit`; give `n_episodes` if it does not end.
        n_episodes : int, optional
            How many elements (episodes or batches) to take; default, all.
        batch_size : int
            Single episodes at a time.

        Returns
        -------
        FewShotScore

        Raises
        ------
        ValueError
            No episode, or one of wrong shapes; `n_episodes` below 1.
        """
        if n_episodes is not None and n_episodes < 1:
            raise ValueError(f"n_episodes: got {n_episodes}, wanted at least 1; leave it out for all")
        self.eval()
        right, used, size, gaps = [], [], [], []
        chosen = (e for e, _ in zip(episodes, range(n_episodes), strict=False)) if n_episodes else episodes
        with undisturbed(), torch.no_grad():
            for batch in batches(chosen, batch_size):
                support, labels, query, wanted = self._features(batch)
                head = self.head.fit(support, labels)
                right.append((head.scores(query).argmax(-1) == wanted).double().mean(-1))
                size.append(head.weight.norm(dim=-1))
                used.append(size[-1] != 0)
                gaps.append(head.gap)
        if not right:
            raise ValueError("episodes: got none, wanted at least one")
        by_episode = torch.cat(right).cpu().numpy()
        usage = _usage(torch.cat(used).cpu().numpy(), torch.cat(size).double().cpu().numpy())
        return FewShotScore(
            float(by_episode.mean()),
            _interval(by_episode),
            float(usage["usage"].mean()),
            float((usage["usage"] > 0).mean()),
            usage,
            float(torch.cat(gaps).max()),
            by_episode,
        )

    def _loss(self, batch: tuple[Tensor, ...]) -> tuple[Tensor, dict[str, float]]:
        """Cross-entropy in nats per query, and figures for the history."""
        support, labels, query, wanted = self._features(batch)
        head = self.head.fit(support, labels)
        scores = self.log_temperature.exp() * head.scores(query)
        loss = nn.functional.cross_entropy(scores.flatten(0, 1), wanted.flatten())
        right = (scores.detach().argmax(-1) == wanted).double().mean()
        used = (head.weight.detach() != 0).any(-1).double().mean()
        return loss, {"accuracy": float(right), "features_used": float(used)}

    def _features(self, batch: tuple[Tensor, ...]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Standardised features (episode, n, feature) and labels of support and query: one pass for all."""
        support_x, support_y, query_x, query_y = batch
        like = next(self.network.parameters(), self.log_temperature)
        inputs = torch.cat([support_x, query_x], 1).to(like)
        features = self.network(inputs.flatten(0, 1)).flatten(1).unflatten(0, inputs.shape[:2])
        support, query = features.split([support_x.shape[1], query_x.shape[1]], 1)
        support, query = standardise(support, query)
        return support, support_y.to(like.device), query, query_y.to(like.device)


def _interval(values: np.ndarray) -> tuple[float, float]:
    """95 % interval of the mean (Student's t); of one value, the value."""
    if len(values) < 2:
        return float(values[0]), float(values[0])
    half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return float(values.mean() - half), float(values.mean() + half)


def _usage(used: np.ndarray, size: np.ndarray) -> pd.DataFrame:
    times = used.sum(0)
    table = pd.DataFrame(
        {
            "feature": np.arange(used.shape[1]),
            "usage": times / len(used),
            "weight": np.where(times > 0, size.sum(0) / np.maximum(times, 1), np.nan),
        }
    )
    return table.sort_values(["usage", "weight"], ascending=False, kind="stable", ignore_index=True)


def _show(bar: tqdm, row: dict[str, float]) -> None:
    bar.update(row["step"] - bar.n)
    bar.set_postfix(
        {name: f"{row[name]:.3f}" for name in ("loss", "accuracy", "features_used")}, refresh=False
    )
