r"""What a latent transition is measured against: the baselines of the mechanism-sparsity paper, one front.

Every method learns an encoder from a frame to its latents; what differs is the loss (`_sequence_losses.py`).
iVAE has a prior given the action and the frame before, β-TCVAE none but weighs total correlation, SlowVAE a
Laplace prior of small steps, PCL tells real successions from permuted ones. "mask_off" is the dense program
of `LatentTransition` without the search for axes, "supervised" regresses on the true latents, "random" has
learned nothing. Networks, optimiser and schedule are those of `LatentTransition`, so that a comparison is
about the losses.
"""

from __future__ import annotations

from typing import NamedTuple, cast

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from .._utils.checks import check_whole
from .._utils.torch_state import undisturbed
from ..data.sequences import SequenceBatch
from ..inference.training.soap import SOAP
from ..inference.transition.transition_run import TransitionRun
from ..inference.transition.transition_schedule import TransitionSchedule
from ..models.latent_transition import LatentTransition
from ._sequence_losses import METHODS, Encoder, Rows

__all__ = ["SEQUENCE_BASELINES", "SequenceBaseline", "SequenceBaselineFit"]

SEQUENCE_BASELINES = ("ivae", "beta_tcvae", "slow_vae", "pcl", "supervised", "random", "mask_off")

_CHUNK = 50_000  # frames encoded at a time


# ---- the front ---------------------------------------------------------------------------------------------
class SequenceBaseline:
    r"""One of the methods that a latent transition is measured against.

    Parameters
    ----------
    method : {"ivae", "beta_tcvae", "slow_vae", "pcl", "supervised", "random", "mask_off"}
        See Notes.
    n_latents : int
        Latents behind a frame.
    seed : int
        The same seed and data give the same latents.
    steps, batch_size : int
        Minibatch steps, and sequences in each ("beta_tcvae" and "supervised": frames).
    hidden : int
        Width of the three hidden layers of encoder and decoder.
    learning_rate : float
        SOAP's step size; warm-up and decay are those of `TransitionSchedule`.
    **options
        "beta_tcvae": `beta` (4), weight of the total correlation. "slow_vae": `beta` (1) and `gamma` (10),
        weights of the first frame's divergence and of the steps', `rate` (6) of the Laplace; the defaults are
        the published ones. "ivae", "pcl", "mask_off": `units` (128, 64, 128), sines of prior, regression
        function and transition.

    Raises
    ------
    ValueError, TypeError
        Unknown method or option, or a number out of range.

    Notes
    -----
    - "ivae" (Khemakhem et al. 2020): :math:`z_t \sim N(m(u), \mathrm{diag}\, s^2(u))`, where u is the action
      if there are any and the frame before if T >= 2, both if both. The paper's iVAE saw actions only; the
      frame before as u is this package's choice. The posterior reads the frame alone, like all others here.
    - "beta_tcvae" (Chen et al. 2018): minibatch-weighted total correlation, on single frames; ``beta=1`` is
      the VAE.
    - "slow_vae" (Klindt et al. 2021): Laplace steps, their divergence in closed form. T >= 2.
    - "pcl" (Hyvärinen & Morioka 2017): logistic discrimination of pairs; general :math:`B_k`, as the
      mechanism-sparsity paper's. T >= 2. No decoder, and latents of any scale.
    - "mask_off": `LatentTransition` in its dense program, left with the axes that it happens to end in.
    - "supervised": least squares on the true latents, the most that a frame can tell.
    - "random": the encoder as initialised, the least.

    References
    ----------
    Lachapelle et al. (2024), arXiv 2401.04890, section 8.

    Examples
    --------
    >>> x = np.random.default_rng(0).normal(size=(30, 2, 5))
    >>> fit = SequenceBaseline("pcl", n_latents=3, steps=3).fit(x)
    >>> fit.transform(x).shape
    (30, 2, 3)
    """

    def __init__(
        self,
        method: str,
        n_latents: int,
        seed: int = 0,
        steps: int = 3000,
        batch_size: int = 512,
        hidden: int = 128,
        learning_rate: float = 5e-3,
        **options: float,
    ) -> None:
        if method not in METHODS:
            raise ValueError(f"method: got {method!r}, wanted one of {', '.join(map(repr, METHODS))}")
        defaults = METHODS[method][1]
        for name, value in options.items():
            if name not in defaults:
                raise TypeError(f"{name}: is no option of {method!r}; it has {list(defaults) or 'none'}")
            if not value > 0:
                raise ValueError(f"{name}: got {value!r}, wanted a positive number")
        check_whole(1, n_latents=n_latents, hidden=hidden, steps=steps, batch_size=batch_size)
        self.method, self.n_latents, self.seed, self.hidden = method, int(n_latents), seed, int(hidden)
        self.options = {**defaults, **options}
        self.schedule = TransitionSchedule(
            steps=steps,
            batch_size=batch_size,
            learning_rate=learning_rate,
            warm_up=min(300, steps // 10),
            evaluate_every=min(100, steps),
        )

    def fit(
        self, X: ArrayLike, actions: ArrayLike | None = None, latents: ArrayLike | None = None
    ) -> SequenceBaselineFit:
        """Fit to sequences.

        Parameters
        ----------
        X : array_like (sequence, time, feature)
            Finite, all of one length; z-scored here.
        actions : array_like (sequence, time, action), optional
            Numbers; ``actions[:, t]`` leads to frame t. Read by "ivae" and "mask_off".
        latents : array_like (sequence, time, latent), optional
            The truth, for "supervised" and only for it.

        Returns
        -------
        SequenceBaselineFit

        Raises
        ------
        ValueError
            The data do not suit the method, or hold what is not a finite number.
        FloatingPointError
            The loss is not finite: the message names method and step.
        """
        arguments = {"X": X, "actions": actions, "latents": latents}
        data = {n: None if v is None and n != "X" else _checked(v, n, X) for n, v in arguments.items()}
        self._check(*data.values())  # type: ignore[arg-type]
        scales = {n: _Scale.of(v, n) for n, v in data.items() if v is not None}
        rows = Rows(*(None if v is None else scales[n].forward(v) for n, v in data.items()))  # type: ignore[arg-type]
        with undisturbed(self.seed):
            network, history = (self._fit_dense if self.method == "mask_off" else self._fit_loss)(rows)
        return SequenceBaselineFit(self, network, scales, history)

    def _check(self, X: np.ndarray, actions: np.ndarray | None, latents: np.ndarray | None) -> None:
        time, wants = X.shape[1], f"X: has T={X.shape[1]}, method {self.method!r} wants"
        if self.method in ("slow_vae", "pcl") and time < 2:
            raise ValueError(f'{wants} T >= 2; give longer sequences, or take "ivae" or "beta_tcvae"')
        if self.method in ("ivae", "mask_off") and time < 2 and actions is None:
            raise ValueError(f'{wants} T >= 2 or actions; give actions=, or take "beta_tcvae"')
        if (self.method == "supervised") != (latents is not None):
            wanted = "wants the true ones" if latents is None else "does not look at them; leave them out"
            raise ValueError(
                f"latents: {'none' if latents is None else 'given'}, method {self.method!r} {wanted}"
            )
        if latents is not None and latents.shape[-1] != self.n_latents:
            raise ValueError(
                f"latents: has {latents.shape[-1]} columns, wanted n_latents={self.n_latents}; change one"
            )

    def _fit_dense(self, rows: Rows) -> tuple[LatentTransition, list[dict[str, float]]]:
        """The dense program of a latent transition, by the package's own run."""
        model = LatentTransition(
            rows.x.shape[-1],
            self.n_latents,
            n_actions=0 if rows.actions is None else rows.actions.shape[-1],
            lags=int(rows.x.shape[1] > 1),
            hidden=self.hidden,
            **self.options,
        )
        model.setup(1, len(rows.x))
        run = TransitionRun(model, _batch(rows), None, self.schedule)
        run.finish()
        return model, [{"step": entry["step"], "loss": -entry["elbo"]} for entry in run.history]

    def _fit_loss(self, rows: Rows) -> tuple[Encoder, list[dict[str, float]]]:
        """Minibatch steps on the method's loss."""
        kind = METHODS[self.method][0]
        assert kind is not None
        rows = rows.frames() if kind.framewise else rows
        network = kind(rows, self.n_latents, self.hidden, **self.options)
        if self.method == "random":
            return network, []
        schedule, total = self.schedule, len(rows.x)
        assert schedule.steps is not None and schedule.batch_size is not None
        optimiser = SOAP(network.parameters(), lr=schedule.learning_rate)
        history, recent = [], 0.0
        for step in range(schedule.steps):
            optimiser.param_groups[0]["lr"] = schedule.rate(step)
            few = min(schedule.batch_size, total)
            loss = network.loss(rows.pick(torch.randint(total, (few,)) if few < total else torch.arange(few)))
            if not torch.isfinite(loss):
                raise FloatingPointError(
                    f"{self.method}: the loss is {loss.item()} at step {step}; lower learning_rate, "
                    "or look for extreme values in the data"
                )
            optimiser.zero_grad(set_to_none=True)
            loss.backward()
            optimiser.step()
            recent += loss.item() / schedule.evaluate_every
            if (step + 1) % schedule.evaluate_every == 0:
                history.append({"step": step + 1, "loss": recent})
                recent = 0.0
        return network, history


class SequenceBaselineFit:
    """What `SequenceBaseline.fit` returns.

    Parameters
    ----------
    settings : SequenceBaseline
        What was asked for.
    network : Module
        With a method ``posterior``.
    scales : dict
        Means and standard deviations of X, actions and latents.
    history : list of dict
        Steps and losses.

    Attributes
    ----------
    history : DataFrame (step, loss)
        Mean loss since the entry before, in nats per sequence ("beta_tcvae": per frame, up to a constant of
        its estimates if beta is not 1; "pcl": per pair; "supervised": mean square); empty for "random".
    """

    def __init__(
        self,
        settings: SequenceBaseline,
        network: LatentTransition | Encoder,
        scales: dict[str, _Scale],
        history: list[dict[str, float]],
    ) -> None:
        self.settings, self.method, self.network = settings, settings.method, network
        self.history = pd.DataFrame(history, columns=["step", "loss"], dtype=float).astype({"step": int})
        self._scales = scales

    def transform(self, X: ArrayLike, actions: ArrayLike | None = None) -> np.ndarray:
        """Latents of every frame, (sequence, time, latent): posterior means.

        Parameters
        ----------
        X : array_like (sequence, time, feature)
            With the features of the fit.
        actions : array_like (sequence, time, action), optional
            Accepted so that all methods may be called alike: every encoder reads the frame alone.

        Raises
        ------
        ValueError
            Not finite, or of another shape than at the fit.
        """
        x = _checked(X, "X", X)
        if x.shape[-1] != len(self._scales["X"].mean):
            raise ValueError(
                f"X: has {x.shape[-1]} features, the fit had {len(self._scales['X'].mean)}; give the same"
            )
        if actions is not None:
            _checked(actions, "actions", x)
        frames = self._scales["X"].forward(x).flatten(0, 1)
        with undisturbed(), torch.no_grad():
            z = torch.cat([self._encode(chunk) for chunk in frames.split(_CHUNK)]).double().numpy()
        if "latents" in self._scales:
            z = z * self._scales["latents"].sd + self._scales["latents"].mean
        return z.reshape(*x.shape[:2], -1)

    def _encode(self, frames: Tensor) -> Tensor:
        if self.method == "mask_off":
            dense = cast(LatentTransition, self.network)
            return dense.posterior(_batch(Rows(frames.unsqueeze(1), None, None))).loc[0, :, 0]
        return cast(Encoder, self.network).posterior(frames)[0]


# ---- data --------------------------------------------------------------------------------------------------
class _Scale(NamedTuple):
    """Mean and standard deviation of every column."""

    mean: np.ndarray
    sd: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray, name: str) -> _Scale:
        flat = values.reshape(-1, values.shape[-1])
        sd = flat.std(0)
        if (flat.min(0) == flat.max(0)).any():
            raise ValueError(f"{name}: column {int(sd.argmin())} is constant; drop it")
        return cls(flat.mean(0), sd)

    def forward(self, values: np.ndarray) -> Tensor:
        return torch.as_tensor((values - self.mean) / self.sd, dtype=torch.float32)


def _checked(values: ArrayLike | None, name: str, X: ArrayLike) -> np.ndarray:
    """A finite array (sequence, time, column) of float, with the sequences and times of X."""
    try:
        array = np.asarray(values, dtype=float)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name}: not an array of numbers ({error}); wanted (sequence, time, column), all of one length"
        ) from error
    if array.ndim != 3 or not array.size:
        raise ValueError(f"{name}: got shape {array.shape}, wanted (sequence, time, column), none of them 0")
    if array.shape[:2] != np.shape(X)[:2]:
        raise ValueError(
            f"{name}: got shape {array.shape}, X has {np.shape(X)}; give a row for every frame of X"
        )
    if not np.isfinite(array).all():
        where = tuple(np.argwhere(~np.isfinite(array))[0].tolist())
        raise ValueError(f"{name}: holds {array[where]} at {where}; wanted finite numbers")
    return array


def _batch(rows: Rows) -> SequenceBatch:
    return SequenceBatch(rows.x, None, None, None, rows.actions, len(rows.x))
