"""Is a prior sound? A test class to inherit: say how to make the prior, and every piece of it is checked.

Each check computes the same thing another way: the density is integrated, its slope differenced, the E-step
redone by Bayes' rule, the M-step by a numerical maximiser, the proximal map by search, and draws are compared
with the density.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Protocol
from unittest import SkipTest

import numpy as np
import pyro
import torch
from pyro import poutine
from scipy import integrate, optimize, special, stats
from torch import Tensor

from .._utils.signatures import signature_misfits
from .._utils.torch_state import default_dtype
from ..priors import Prior, SpikeSlabPrior
from ..priors._check import point_mass

if TYPE_CHECKING:
    import numpy.typing as npt
    from pyro.poutine import Trace
    from torch.distributions import Distribution

__all__ = ["PriorTestCase"]


class _ByScipy(Protocol):
    """A density of scipy's, frozen."""

    def logpdf(self, values: np.ndarray, /) -> np.ndarray: ...


class _Density:
    """A torch distribution read as one of scipy."""

    def __init__(self, density: Distribution):
        self.density = density

    def logpdf(self, values: np.ndarray) -> np.ndarray:
        return self.density.log_prob(torch.as_tensor(values)).numpy()


class PriorTestCase:
    """Base class of a prior's tests for pytest: inherit, name the class ``Test...``, define :meth:`make`.

    With a prior that has edge odds define :meth:`components` too. Checks of what a prior lacks are skipped.

    Attributes
    ----------
    n_features, n_factors, n_samples : int
        Sizes that the prior is set up with.
    seed : int
        Seed of every draw.
    steps : tuple of float
        Step sizes at which the proximal map is checked.

    Examples
    --------
    >>> from pyro_sparse.priors import Laplace
    >>> from pyro_sparse.testing import PriorTestCase
    >>> class TestLaplace(PriorTestCase):
    ...     def make(self):
    ...         return Laplace(rate=3.0)
    >>> TestLaplace().test_density_integrates_to_one()
    """

    n_features = 12
    n_factors = 3
    n_samples = 50
    seed = 0
    steps: tuple[float, ...] = (1e-3, 0.1, 1.0)

    def make(self) -> Prior:
        """A fresh prior, not yet set up."""
        raise NotImplementedError(f"{type(self).__name__} must define make(), returning a new prior.")

    def by_scipy(self, prior: Prior) -> tuple[npt.ArrayLike, _ByScipy, _ByScipy]:
        """The mixture that the edge odds speak of, written down independently of the prior's own code.

        Default, of a `SpikeSlabPrior`: the two densities that it names in its own `components`.

        Returns
        -------
        eta : array_like
            Prior probability of an edge, broadcastable to (R, G, K).
        slab, spike : objects with ``logpdf``
            Frozen :mod:`scipy.stats` distributions of a weight with and without an edge.
        """
        with default_dtype(torch.float64):
            components = prior.components()
        if not isinstance(prior, SpikeSlabPrior) or components is None:
            raise NotImplementedError(
                f"{type(self).__name__} must define by_scipy(prior): its prior has edge odds."
            )
        slab, spike = map(_Density, components)
        return torch.sigmoid(torch.logit(prior.eta) + prior.known).numpy(), slab, spike

    # What the tests share

    def _prior(
        self, restarts: int = 2, permitted: Tensor | None = None, dtype: torch.dtype = torch.float64
    ) -> Prior:
        prior = self.make().to(dtype)
        prior.setup(self.n_features, self.n_factors, restarts, self.n_samples, allowed=permitted)
        return prior

    def _mask(self) -> Tensor:
        """A mask whose columns have different numbers of free features."""
        last = torch.linspace(self.n_features // 2, self.n_features, self.n_factors).round()
        return torch.arange(self.n_features)[:, None] < last

    def _draw(self, prior: Prior) -> Tensor:
        with torch.no_grad():
            return self._trace(prior).nodes[prior.site]["value"]

    def _trace(self, prior: Prior) -> Trace:
        pyro.set_rng_seed(self.seed)
        with pyro.plate("restart", prior.n_restarts, dim=-1):
            trace = poutine.trace(prior).get_trace()
        trace.compute_log_prob()
        return trace

    @staticmethod
    def _curve(prior: Prior, points: np.ndarray) -> np.ndarray:
        """Log density at each point, shape (point, *batch)."""
        d = prior.distribution()
        value = torch.as_tensor(points, dtype=torch.float64).reshape(-1, *[1] * len(d.batch_shape))
        with torch.no_grad():
            return d.log_prob(value.expand(-1, *d.batch_shape)).numpy()

    # The checks

    def test_signatures(self) -> None:
        """Methods take the arguments that the package calls them with, those of `setup` by name too."""
        prior = self.make()
        misfits = [*signature_misfits(prior, Prior, by_name=("setup",)), *signature_misfits(prior, Prior)]
        misfits += signature_misfits(prior, SpikeSlabPrior) if isinstance(prior, SpikeSlabPrior) else []
        assert not misfits, "\n".join(misfits)

    def test_components_are_densities(self) -> None:
        """Slab and spike have no mass at single points: beside one, the other density counts for nothing."""
        components = self._prior().components()
        if components is None:
            raise SkipTest("the prior has no slab and spike")
        for name, component in zip(("slab", "spike"), components, strict=True):
            assert not point_mass(component), (
                f"the {name} of components() is a {type(component).__name__} with mass at single points; "
                "want a narrow density"
            )

    def test_density_integrates_to_one(self) -> None:
        """Quadrature over both half-lines on a logarithmic scale, at three places of the ladder."""
        prior = self._prior()
        prior.update(self._draw(prior))
        u = np.linspace(-69, 69, 16_001)  # weights of 1e-30 to 1e30
        for progress in (0.0, 0.5, 1.0):
            prior.anneal(progress)
            mass = sum(
                integrate.simpson(np.exp(self._curve(prior, side * np.exp(u)).T + u), x=u) for side in (-1, 1)
            )
            np.testing.assert_allclose(mass, 1, atol=1e-6, err_msg=f"mass of the density at {progress=}")

    def test_gradient(self) -> None:
        """Automatic against finite differences in double precision; finite at zero and far out."""
        prior = self._prior()
        size = np.geomspace(1e-3, 1e3, 61)
        points = np.concatenate([-size, size])
        h = 1e-6
        slope = (self._curve(prior, points * (1 + h)) - self._curve(prior, points * (1 - h))) / (2 * h)
        d = prior.distribution()
        shape = (-1, *[1] * len(d.batch_shape))
        value = torch.as_tensor(points).reshape(shape).expand(-1, *d.batch_shape).clone().requires_grad_()
        (gradient,) = torch.autograd.grad(d.log_prob(value).sum(), value)
        # Both are compared as w times the gradient: the change for a relative change of w.
        scaled_gradient = gradient.numpy() * points.reshape(shape)
        np.testing.assert_allclose(
            scaled_gradient, slope, rtol=1e-4, atol=1e-5, err_msg="w times the gradient of log_prob"
        )
        for dtype in (torch.float32, torch.float64):
            d = self._prior(dtype=dtype).distribution()
            edge = torch.tensor([0.0, 1e3, -1e3], dtype=dtype).reshape(shape).expand(-1, *d.batch_shape)
            edge = edge.clone().requires_grad_()
            log_prob = d.log_prob(edge)
            (gradient,) = torch.autograd.grad(log_prob.sum(), edge)
            assert torch.isfinite(log_prob).all(), f"log_prob at 0, 1e3 and -1e3 is {log_prob} in {dtype}"
            assert torch.isfinite(gradient).all(), f"its gradient at 0, 1e3 and -1e3 is {gradient} in {dtype}"

    def test_samples_follow_density(self) -> None:
        """Kolmogorov-Smirnov test of draws against the integrated density."""
        prior = self._prior()
        u = np.linspace(-69, 69, 16_001)
        x = np.concatenate([-np.exp(u[::-1]), np.exp(u)])
        density = np.exp(self._curve(prior, x).reshape(len(x), -1)[:, 0])
        half = len(u)  # in each half-line dx = |x| du; they meet at zero, where nothing is left to integrate
        left = integrate.cumulative_trapezoid((density * np.abs(x))[:half], u, initial=0)
        right = integrate.cumulative_trapezoid((density * np.abs(x))[half:], u, initial=0)
        cdf = np.concatenate([left, left[-1] + right])
        torch.manual_seed(self.seed)
        with torch.no_grad():
            draws = prior.distribution().sample(torch.Size([5000])).reshape(5000, -1)[:, 0].numpy()
        result = stats.kstest(draws, lambda w: np.interp(w, x, cdf))
        # Of one seed: it passes always or never.
        assert result.pvalue > 1e-3, f"draws do not follow the density: {result}"

    def test_program_scores_the_density(self) -> None:
        """The site has the shape of the weights and one log density per restart, that of the distribution."""
        for restarts in (1, 2, 7):
            for permitted in (None, self._mask()):
                prior = self._prior(restarts, permitted)
                site = self._trace(prior).nodes[prior.site]
                shape = (restarts, self.n_features, self.n_factors)
                assert site["value"].shape == shape, (
                    f"W has shape {tuple(site['value'].shape)}, wanted {shape}"
                )
                assert site["log_prob"].shape == (restarts,), (
                    f"log density has shape {site['log_prob'].shape}"
                )
                log_densities = prior.distribution().log_prob(site["value"]).expand(shape)
                total = (log_densities if permitted is None else log_densities * permitted).sum((1, 2))
                torch.testing.assert_close(site["log_prob"], total)
                torch.testing.assert_close(prior.log_density(site["value"]), total)
                assert prior.log_hyper().shape == (restarts,), "log_hyper() must have shape (restart,)"

    def test_edge_odds_are_bayes(self) -> None:
        """E-step against Bayes' rule on :meth:`by_scipy`, and the density against their mixture."""
        prior = self._prior()
        shape = (2, self.n_features, self.n_factors)
        size = np.geomspace(1e-4, 10, int(np.prod(shape)) - 1)
        weights = np.concatenate([[0.0], size * np.resize([1, -1], len(size))]).reshape(shape)
        if prior.edge_log_odds(torch.as_tensor(weights)) is None:
            raise SkipTest("the prior has no edge odds")
        prior.update(self._draw(prior))
        for progress in (0.0, 0.5, 1.0):
            prior.anneal(progress)
            eta, slab, spike = self.by_scipy(prior)
            present = np.log(eta) + slab.logpdf(weights)
            absent = np.log1p(-np.asarray(eta)) + spike.logpdf(weights)
            mixture = np.logaddexp(present, absent)
            finite = np.isfinite(mixture)  # not where both components underflow
            odds = prior.edge_log_odds(torch.as_tensor(weights))
            assert odds is not None and odds.shape == shape, (
                f"edge_log_odds must have the weights' shape {shape}"
            )
            probability, wanted = special.expit(odds.numpy())[finite], np.exp((present - mixture)[finite])
            np.testing.assert_allclose(probability, wanted, atol=1e-8, err_msg="P(edge | w)")
            density = prior.distribution().log_prob(torch.as_tensor(weights)).numpy()
            np.testing.assert_allclose(density[finite], mixture[finite], rtol=1e-8, err_msg="log density")

    def test_update_climbs_to_the_maximum(self) -> None:
        """EM never lowers log p(W, hyper), and where it stops no hyper-parameter can be improved."""
        for permitted in (None, self._mask()):
            prior = self._prior(permitted=permitted)
            weights = self._draw(prior)
            start = {name: value.clone() for name, value in prior.named_buffers()}
            last = self._objective(prior, weights)
            for step in range(20_000):
                before = [b.clone() for b in prior.buffers() if b.is_floating_point()]
                prior.update(weights)
                after = [b for b in prior.buffers() if b.is_floating_point()]
                if step < 20:
                    now = self._objective(prior, weights)
                    assert (now >= last - 1e-9 * (1 + last.abs())).all(), f"an update lowered {last} to {now}"
                    last = now
                if all(torch.allclose(x, y, rtol=1e-13, atol=0) for x, y in zip(before, after, strict=True)):
                    break
            changed = [
                n for n, b in prior.named_buffers() if b.is_floating_point() and not torch.equal(b, start[n])
            ]
            if not changed:
                raise SkipTest("the prior has no update")
            for name in changed:
                self._check_maximum(prior, weights, name)

    @staticmethod
    def _objective(prior: Prior, weights: Tensor) -> Tensor:
        return prior.log_density(weights) + prior.log_hyper()

    def _check_maximum(self, prior: Prior, weights: Tensor, name: str) -> None:
        """Maximise over one hyper-parameter at a time (equal ones within a restart move together).

        A buffer that log p does not depend on (what `update` notes down) is no hyper-parameter.
        """
        buffer = dict(prior.named_buffers())[name]
        for restart in range(prior.n_restarts):
            entries = buffer[restart] if buffer.dim() and len(buffer) == prior.n_restarts else buffer
            for value in entries.unique():
                group = entries == value

                def loss(scale: float, entries=entries, group=group, value=value, restart=restart) -> float:
                    entries[group] = value * scale
                    try:
                        return -float(self._objective(prior, weights)[restart])
                    except ValueError:  # outside the parameter's support
                        return np.inf
                    finally:
                        entries[group] = value

                best = optimize.minimize_scalar(
                    loss, bounds=(0.97, 1.03), method="bounded", options={"xatol": 1e-9}
                )
                here = loss(1.0)
                gain = here - best.fun
                assert abs(best.x - 1) < 1e-4 or gain <= 1e-12 * (1 + abs(here)), (
                    f"update() leaves {name} at {float(value):.6g} in restart {restart}, "
                    f"but log p(W, {name}) is higher at {float(value) * best.x:.6g}"
                )

    def test_prox_minimises(self) -> None:
        """The proximal map's objective is at most that of every point of a fine grid; 0 at forbidden edges.

        Hyper-parameters are learned first, from weights whose size differs by restart and factor.
        """
        if self._prior().prox(torch.zeros(self._prior().shape, dtype=torch.float64), 1.0) is None:
            raise SkipTest("the prior has no proximal map")
        generator = torch.Generator().manual_seed(self.seed)
        ratio = torch.cat([torch.linspace(-1, 2, 3001), torch.logspace(-8, 0, 801), torch.zeros(1)]).double()
        for permitted, progress in itertools.product((None, self._mask()), (0.0, 0.5, 1.0)):
            prior = self._prior(permitted=permitted)
            shape = prior.shape
            size = torch.logspace(-0.5, 0.5, shape[0] * shape[2], dtype=torch.float64)
            prior.update(self._draw(prior) * size.reshape(shape[0], 1, shape[2]))
            prior.anneal(progress)
            for step in self.steps:
                v = 2 * torch.randn(shape, generator=generator, dtype=torch.float64)
                v.view(-1)[0] = 0.0

                def objective(w: Tensor, v=v, step=step, prior=prior) -> Tensor:
                    return 0.5 * (w - v) ** 2 - step * prior.distribution().log_prob(w)

                new = prior.prox(v, step)
                assert new is not None and new.shape == shape, "prox must keep the shape of the weights"
                assert (new[:, ~prior.allowed] == 0).all(), "prox must be 0 at forbidden edges"
                excess = (objective(new) - objective(ratio.reshape(-1, 1, 1, 1) * v).amin(0)) * prior.allowed
                worst = int(excess.argmax())
                assert excess.max() <= 1e-10, (
                    f"prox({float(v.view(-1)[worst]):.6g}, {step}) = {float(new.view(-1)[worst]):.6g} is not "
                    f"the minimiser: its objective is {float(excess.max()):.3g} above another point's"
                )
                per_weight = prior.prox(v, torch.full(shape, step, dtype=torch.float64))
                torch.testing.assert_close(per_weight, new)

    def test_ladder_ends_at_the_prior(self) -> None:
        """Without ``anneal``, and at its end, the prior is the one specified; what was learned stays.

        Training calls ``anneal`` before every step, so that it may not touch what ``update`` has found.
        """
        prior = self._prior()
        points = np.linspace(-2, 2, 9)
        specified = self._curve(prior, points)
        for progress in (0.0, 0.3, 1.0):
            prior.anneal(progress)
            assert np.isfinite(self._curve(prior, points)).all(), f"the density is not finite at {progress=}"
        np.testing.assert_allclose(self._curve(prior, points), specified, rtol=1e-6)
        prior.update(self._draw(prior))
        learned, hyper = self._curve(prior, points), prior.log_hyper()
        before = {name: buffer.clone() for name, buffer in prior.named_buffers()}
        for progress in (0.0, 0.3, 1.0):
            prior.anneal(progress)
        moved = [name for name, buffer in prior.named_buffers() if not torch.equal(buffer, before[name])]
        kept = f"anneal() changes what update() learned: {', '.join(moved)}"
        np.testing.assert_allclose(self._curve(prior, points), learned, rtol=1e-6, err_msg=kept)
        torch.testing.assert_close(prior.log_hyper(), hyper, msg=lambda text: f"{kept}\n{text}")

    def test_state_dict_round_trip(self) -> None:
        """Everything that a fit changes is in ``state_dict``."""
        prior = self._prior()
        weights = self._draw(prior)
        prior.update(weights)
        prior.anneal(0.5)
        restored = self._prior()
        restored.load_state_dict(prior.state_dict())
        assert torch.equal(restored.log_density(weights), prior.log_density(weights)), "log_density changed"
        assert torch.equal(restored.log_hyper(), prior.log_hyper()), "log_hyper changed"

    def test_dtype_and_device(self) -> None:
        """Single and double precision agree; on a GPU too, where there is one."""
        reference = self._prior()
        weights = self._draw(reference)
        reference.update(weights)
        wanted = reference.log_density(weights)
        devices = ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])
        for device in devices:
            for dtype, rtol in ((torch.float32, 1e-3), (torch.float64, 1e-6)):
                prior = self._prior(dtype=dtype).to(device)
                there = weights.to(device, dtype)
                prior.update(there)
                log_density = prior.log_density(there)
                assert log_density.dtype == dtype and log_density.device.type == device, (
                    f"{log_density.dtype} on {log_density.device}"
                )
                torch.testing.assert_close(
                    log_density.cpu().double(), wanted, rtol=rtol, atol=rtol * self.n_features
                )
                new = prior.prox(there, 0.1)
                assert new is None or (new.dtype, new.device) == (there.dtype, there.device)
                if any(b.is_floating_point() for b in prior.buffers()):
                    assert self._draw(prior).dtype == dtype, f"draws are not {dtype}"

    def test_setup_refuses_bad_sizes(self) -> None:
        """The shared checks of ``Prior.setup`` are reached."""
        for sizes in ((0, 3), (12, -1)):
            try:
                self.make().setup(*sizes)
            except ValueError:
                continue
            raise AssertionError(f"setup{sizes} was accepted; call super().setup(...) first")
