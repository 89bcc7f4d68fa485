"""The order of events for a pair of autoencoders: every restart is a training of its own, with its own seed.

Restarts are the refits that a posterior of the graph is taken over, so that none is thrown away: the best one
(by what it leaves unexplained of held-out rows) is only the one that is shown first.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pandas as pd
import torch
from torch import Tensor, nn

from ..._utils.torch_state import undisturbed
from ..._utils.version import __version__
from ...findings.finding import Finding
from ..table.latent_penalty import DependencyPenalty
from ..training import checkpoint as files
from ..training.interrupt import stopped_between_steps
from ..training.parts import renumbered, split
from ..training.ranks import ALONE
from ..training.restarts import child_seeds
from .pair_result import AutoencoderFit, layer_digest
from .pair_run import PairRun
from .schedule import AutoencoderSchedule

if TYPE_CHECKING:
    from ...data.activations import Activations
    from ...models.autoencoder_pair import AutoencoderPair

__all__ = ["AutoencoderJob", "PairGroup"]

_SURROGATES = ("l1", "ratio")  # of a penalty of single rows
_LOOKED_AT = 4096  # rows on which the layer is compared with what came after it
_OTHER_LAYER = 0.5  # of the variance of Y that the layer leaves: it is hardly what Y came from
_LEAST_STEPS = 100  # of a training that is worth looking at
_LEAST_ROWS = 20


class AutoencoderJob:
    """The fit of a pair.

    Parameters
    ----------
    model : AutoencoderPair
    data : Activations
    restarts, seed, schedule, holdout, device, dtype
        As in `pyro_sparse.fit`. The last rows are held out.
    dependency : DependencyPenalty, optional
        Of surrogate "l1" or "ratio".

    Raises
    ------
    ValueError, TypeError
        The layer does not fit the activations or is not row by row, there are too few rows, or the penalty is
        none of single rows.
    """

    def __init__(
        self,
        model: AutoencoderPair,
        data: Activations,
        *,
        restarts: int = 3,
        seed: int = 0,
        schedule: AutoencoderSchedule | None = None,
        holdout: float = 0.1,
        dependency: object = None,
        device: str = "cpu",
        dtype: torch.dtype = torch.float32,
    ):
        self.model, self.data, self.n_restarts, self.device = model, data, restarts, device
        self.rounded = dtype == torch.bfloat16
        self.dtype = torch.float32 if self.rounded else dtype
        if isinstance(model.between, nn.Module):  # the fit's own copy
            model.between.to(device=device, dtype=self.dtype).eval().requires_grad_(False)
        self.dependency = _checked_penalty(dependency)
        n_held = round(holdout * len(data))
        if len(data) - n_held < _LEAST_ROWS:
            raise ValueError(
                f"X: {len(data) - n_held} rows are left to learn from, wanted at least {_LEAST_ROWS}"
            )
        self.train = data.some(slice(0, len(data) - n_held))
        self.judged = data.some(slice(len(data) - n_held, None)) if n_held else data
        self.schedule = (schedule or AutoencoderSchedule()).decided(len(self.train))
        assert self.schedule.steps is not None
        self.n_steps = restarts * self.schedule.steps
        self.ranks = ALONE
        self.seeds = child_seeds(seed, restarts)
        self.findings = [*self._layer_findings(), *_held_findings(n_held)]
        self.units = self.train.units()
        self.settings = {
            "model": repr(model),
            "rows": len(self.train),
            "restarts": restarts,
            "seed": seed,
            "holdout": holdout,
            "standardise": data.standardise,
            "device": device,
            "dtype": "bfloat16" if self.rounded else str(self.dtype).removeprefix("torch."),
            "aux": model.aux,
            "dependency": None if self.dependency is None else self.dependency.as_dict(),
            **self.schedule.as_dict(),
        }

    def _layer_findings(self) -> list[Finding]:
        """Whether Y is what the layer makes of X; a complaint if it cannot be."""
        from ..edges.dictionaries.latent_graph import check_layer  # late, since that room reads results

        x, y = self.train.some(slice(0, _LOOKED_AT)).rows(slice(None), self.dtype, self.device)
        width = x.shape[1]
        with torch.no_grad():
            try:
                out = self.model.between(x)
            except RuntimeError as error:
                raise ValueError(
                    f"between: fails on rows of X, which have {width} dimensions "
                    f"({str(error).splitlines()[0]}); wanted the layer that X goes into"
                ) from error
            if isinstance(out, Tensor) and out.dim() == 2 and out.shape[1] != y.shape[1]:
                raise ValueError(
                    f"between: makes {out.shape[1]} dimensions of X, and Y has {y.shape[1]}; wanted Y as it "
                    "comes out of the layer"
                )
            check_layer(self.model.between, x[:8])
            left = float((out - y).square().sum() / (y - y.mean(0)).square().sum())
        if not left > _OTHER_LAYER:
            return []
        return [
            Finding(
                "layer",
                f"between(X) leaves {left:.0%} of the variance of Y: Y does not come out of this layer",
                "record Y behind the very layer, before anything is added to it",
                severity="doubt",
                source="data",
                size=left,
            )
        ]

    @cached_property
    def fingerprint(self) -> str:
        """What must agree for a file to belong to this fit."""
        layer = layer_digest(self.model.between)
        about = {"data": files.digest(*self.data.content()), "layer": layer, "version": __version__}
        return json.dumps({**self.settings, **about}, sort_keys=True)

    def groups(self) -> list[range]:
        """Restarts are trained one by one."""
        return [range(number, number + 1) for number in range(self.n_restarts)]

    def make(self, group: range) -> PairGroup:
        """A restart at its start."""
        return PairGroup(self.run(group.start), self)

    def run(self, number: int) -> PairRun:
        """The training of a restart, at its start.

        Parameters
        ----------
        number : int
        """
        torch.manual_seed(self.seeds[number])
        pair = self.model.build(*self.data.sizes)
        for sae, unit in zip(pair, self.units, strict=True):
            sae.to(device=self.device, dtype=self.dtype)
            sae.standardise_by(unit.centre, unit.scale)
        return PairRun(
            self.model, pair, self.train, self.schedule, self.dependency, number, rounded=self.rounded
        )

    def status(self, run: Any) -> str:
        """What the bar says of a run."""
        row = run.history[-1]
        return (
            f"unexplained {row['fvu_in']:.3f} {row['fvu_out']:.3f}, dead {row['dead_in']} {row['dead_out']}"
        )

    def conclude(self, trained: list[PairGroup], notes: list[str]) -> AutoencoderFit:
        """The fit of trained restarts."""
        states = [group.run.trained() for group in trained]
        return self.result(states, [row for group in trained for row in group.run.history], notes)

    def pieces(self, n_jobs: int) -> list[range]:
        """Restarts to train in each of so many processes."""
        return split(self.groups(), n_jobs)

    def part(self, restarts: range) -> dict[str, Any]:
        """Train restarts, one after the other; each has its own random numbers."""
        states, history = [], []
        for number in restarts:
            run = self.run(number)
            run.finish(lambda run: None)
            states.append(run.trained())
            history += run.history
        return {"restarts": list(restarts), "states": states, "history": history}

    def merge(self, trained_parts: list[dict[str, Any]], notes: list[str]) -> AutoencoderFit:
        """The fit of restarts that were trained in parts, in the order of their numbers."""
        numbers = [r for trained in trained_parts for r in trained["restarts"]]
        states = [state for trained in trained_parts for state in trained["states"]]
        history = renumbered([row for trained in trained_parts for row in trained["history"]], numbers)
        return self.result(states, history, notes)

    def result(
        self, states: list[dict[str, dict[str, Tensor]]], history: list[dict[str, Any]], notes: list[str]
    ) -> AutoencoderFit:
        """The fit of these dictionaries, measured on held-out rows.

        Parameters
        ----------
        states : list of dict
            Of both autoencoders of each restart.
        history : list of dict
        notes : list of str
            Warnings so far.
        """
        pairs = []
        for state in states:
            with undisturbed(0):
                pair = self.model.build(*self.data.sizes)
            for sae, name in zip(pair, ("before", "after"), strict=True):
                sae.to(device=self.device, dtype=self.dtype).load_state_dict(state[name])
                sae.eval().requires_grad_(False)
            pairs.append(pair)
        findings = [*self.findings, *(Finding("training", note) for note in notes)]
        return AutoencoderFit.build(
            self.model, pairs, self.judged, history=pd.DataFrame(history), device=self.device,
            settings={**copy.deepcopy(self.settings), "restarts": len(pairs)}, findings=findings,
        )  # fmt: skip


class PairGroup:
    """One restart.

    Parameters
    ----------
    run : PairRun
    job : AutoencoderJob
    """

    def __init__(self, run: PairRun, job: AutoencoderJob):
        self.run, self.job = run, job

    @property
    def step(self) -> int:
        """Steps that it has made."""
        return self.run.step

    @property
    def is_early(self) -> bool:
        """Whether it is too short to look at."""
        return self.run.step < min(_LEAST_STEPS, self.run.n_steps)

    @property
    def place(self) -> str:
        """Where it is."""
        return f"at step {self.run.step} of {self.run.n_steps} of restart {self.run.number}"

    def load(self, saved: dict[str, Any]) -> None:
        """Go on from a state."""
        self.run.load(saved)

    def state(self) -> dict[str, Any]:
        """All that a resumed run needs."""
        return self.run.state()

    def finish(self, show: Callable[[Any], None]) -> None:
        """Train to the end."""
        with stopped_between_steps(show) as between:
            self.run.finish(between)

    def conclude(self, notes: list[str], alone: bool, show: Callable[[Any], None]) -> bool:
        """Nothing follows the training."""
        return True


def _held_findings(n_held: int) -> list[Finding]:
    if n_held:
        return []
    return [Finding("rows", "no rows were held out: figures are of rows that the dictionaries learned from")]


def _checked_penalty(dependency: object) -> DependencyPenalty | None:
    """The penalty, or a complaint that it is none of the slopes between codes at single rows."""
    if dependency is None:
        return None
    if not isinstance(dependency, DependencyPenalty):
        raise TypeError(
            f"dependency: got a {type(dependency).__name__}, wanted a DependencyPenalty: a pair of "
            "autoencoders has no latents of a decoder for another penalty to act on"
        )
    if dependency.surrogate not in _SURROGATES:
        raise ValueError(
            f"dependency: surrogate {dependency.surrogate!r} needs the mean over all rows of each slope, of "
            f"n_latents_in times n_latents_out of them; wanted one of {list(_SURROGATES)}"
        )
    if dependency.estimator not in ("auto", "column"):
        raise ValueError(
            f"dependency: estimator {dependency.estimator!r} is not for a pair of autoencoders, which takes "
            "one active latent of each row at random; wanted 'auto'"
        )
    return dependency
