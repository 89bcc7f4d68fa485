"""A ready battery for likelihoods: inherit, say how to make yours, and run pytest::

    class TestMyLikelihood(LikelihoodTestCase):
        bad_values = (-1.0,)

        def make(self):
            return MyLikelihood()

Each check compares the likelihood with something computed another way: a sum or a quadrature, finite
differences, a smaller table, a sample mean.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import torch
from scipy.integrate import quad
from torch import Tensor

from ..models.likelihoods import Likelihood

__all__ = ["LikelihoodTestCase"]


class LikelihoodTestCase:
    """What every likelihood must pass.

    Attributes
    ----------
    bad_values : tuple of float
        Finite values that `Likelihood.check` must refuse.

    Notes
    -----
    Override `make`; override `data` if draws of the likelihood at random predictors are not valid data.
    """

    bad_values: tuple[float, ...] = ()
    n_rows = 6
    n_features = 4

    def make(self) -> Likelihood:
        """A fresh instance, before `setup`."""
        raise NotImplementedError("LikelihoodTestCase: override make() to return your likelihood")

    def ready(self, n_features: int | None = None, n_restarts: int = 1, dtype=torch.float64) -> Likelihood:
        """A set-up instance whose parameters differ between features and restarts."""
        likelihood = self.make()
        likelihood.setup(n_features or self.n_features, n_restarts)
        likelihood.to(dtype)
        with torch.no_grad():
            for p in likelihood.parameters():
                p.add_(0.5 * torch.randn(p.shape, generator=torch.Generator().manual_seed(3), dtype=dtype))
        return likelihood

    def predictor(
        self, n_restarts: int = 1, n_rows: int | None = None, n_features: int | None = None
    ) -> Tensor:
        """Random linear predictor (R, B, G) in float64."""
        generator = torch.Generator().manual_seed(1)
        shape = (n_restarts, n_rows or self.n_rows, n_features or self.n_features)
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    def exposure(self, likelihood: Likelihood, n_rows: int | None = None) -> Tensor | None:
        """Unequal exposures (B, 1), or None."""
        if not likelihood.uses_exposure:
            return None
        return torch.arange(3.0, 3.0 + (n_rows or self.n_rows), dtype=torch.float64).unsqueeze(-1)

    def data(self, n_rows: int | None = None, n_features: int | None = None) -> Tensor:
        """Valid data (B, G), no cell missing: default a draw from the likelihood itself."""
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(2)
            likelihood = self.ready(n_features)
            f = self.predictor(1, n_rows, n_features)
            return likelihood.observation(f, exposure=self.exposure(likelihood, n_rows)).sample()[0]

    # ---- the density -------------------------------------------------------------------------------------
    def test_density_sums_to_one(self):
        """Sum, or quadrature, of exp(log_prob) over everything a row may be."""
        with torch.no_grad():
            likelihood, f = self.ready(3), self.predictor(1, 1, 3)
            cells = likelihood(f, self.exposure(likelihood, 1))
            if len(cells.event_shape):
                rows = [r for r in itertools.product(range(5), repeat=3) if sum(r) == 4]
                x = torch.tensor(rows, dtype=torch.float64)
                _close(likelihood.log_prob(f.expand(1, len(x), 3), x).exp().sum(), 1.0, 1e-9, "density")
                return
            mean, sd = cells.mean.flatten(), cells.stddev.flatten()
            for j in range(3):
                if cells.support.is_discrete:
                    values = torch.arange(int(mean[j] + 60 * sd[j] + 60), dtype=torch.float64)
                    values = values[cells.support.check(values)]
                    x = torch.zeros(len(values), 3, dtype=torch.float64)
                    x[:, j] = values
                    total = likelihood.log_prob(*self._only(f, x, j, likelihood)).exp().sum()
                else:
                    x = torch.zeros(1, 3, dtype=torch.float64)

                    def density(value, x=x, j=j):
                        x[0, j] = value
                        return float(likelihood.log_prob(*self._only(f, x, j, likelihood)).exp())

                    centre, width = float(mean[j]), float(sd[j])
                    low, high = self._bounds(cells, j)
                    ends = max(centre - 30 * width, low), min(centre + 30 * width, high)
                    area = quad(density, *ends, points=[centre])[0]
                    total = torch.tensor(area)
                _close(total, 1.0, 1e-6, f"density of feature {j}")

    @staticmethod
    def _bounds(cells: Any, j: int) -> tuple[float, float]:
        """Where the support of feature j begins and ends."""
        ends = (("lower_bound", -np.inf), ("upper_bound", np.inf))
        found = [torch.as_tensor(getattr(cells.support, name, end)) for name, end in ends]
        low, high = (float(end.expand(cells.mean.shape).flatten()[j]) for end in found)
        return low, high

    def _only(self, f: Tensor, x: Tensor, j: int, likelihood: Likelihood):
        mask = torch.zeros(x.shape, dtype=torch.bool)
        mask[:, j] = True
        return f.expand(1, len(x), -1), x, mask, self.exposure(likelihood, 1)

    def test_score(self):
        """If cells are separable, the derivative in closed form against autograd, and cells one by one."""
        likelihood, x = self.ready(n_restarts=2), self.data()
        if not likelihood.separable:
            return
        exposure, f = self.exposure(likelihood), 3 * self.predictor(2).requires_grad_()
        (expected,) = torch.autograd.grad(likelihood(f, exposure).log_prob(x).sum(), f)
        score = likelihood.scorer(exposure)
        for r in range(2):
            for own in (torch.tensor([2, 0]), torch.tensor([1])):
                if score is not None:
                    found = score(f[r].mT[own], x.mT[own], r, own)
                    _close(found.detach(), expected[r].mT[own], 1e-9, "scorer")
                moved = f.detach().clone()
                moved[..., [j for j in range(f.shape[-1]) if j not in own]] += 1.0
                cells = [likelihood(g.detach(), exposure).log_prob(x)[r][:, own].detach() for g in (f, moved)]
                _close(cells[1], cells[0], 1e-12, "log_prob of a separable likelihood")

    def test_slopes(self):
        """Values and gradients as fits take them against autograd, with a mask and other weights, too."""
        likelihood, x, f = self.ready(n_restarts=2), self.data(), self.predictor(2)
        exposure, names = self.exposure(likelihood), [name for name, _ in likelihood.named_parameters()]
        mask = torch.rand(x.shape, generator=torch.Generator().manual_seed(5)) < 0.6
        for seen, weights in itertools.product((None, mask), ((1.0, 1.0), (3.0, 0.4))):
            found = likelihood.closed_slopes()(f, x, seen, exposure, *weights)
            wanted = Likelihood.slopes(likelihood, f, x, seen, exposure, *weights)
            assert found.terms.keys() == wanted.terms.keys(), f"slopes has the terms {list(found.terms)}"
            for name, term in wanted.terms.items():
                _close(found.terms[name], term, 1e-9, f"term {name} of slopes")
            _close(found.by_f, wanted.by_f, 1e-9, "slopes by f")
            for name, got, want in zip(names, found.by_own, wanted.by_own, strict=True):
                _close(got, want, 1e-9, f"slopes by {name}")

    def test_feature_gain(self):
        """Statistics add up over rows, and a gain is positive where the log-likelihood is larger."""
        with torch.no_grad():
            likelihood, x, f = self.ready(n_restarts=2), self.data(40), self.predictor(1, 40).repeat(2, 1, 1)
            exposure = self.exposure(likelihood, 40)
            mask = torch.rand(x.shape, generator=torch.Generator().manual_seed(5)) < 0.6

            def statistic(g: Tensor, rows: slice = slice(None)) -> Tensor:
                own = None if exposure is None else exposure[rows]
                return likelihood.feature_statistic(g[:, rows], f[:, rows], x[rows], mask[rows], own)

            other = f + torch.tensor([3.0, -3.0], dtype=f.dtype).reshape(2, 1, 1)
            full, reduced = statistic(f), statistic(other)
            parts = statistic(other, slice(15)) + statistic(other, slice(15, None))
            _close(parts, reduced, 1e-9, "feature_statistic of all rows")
            _close(likelihood.feature_gain(full, full), 0.0, 1e-12, "feature_gain of nothing")
            gain = likelihood.feature_gain(full, reduced)
            assert gain.shape == (2, self.n_features), f"feature_gain has shape {gain.shape}"
            best = likelihood.log_prob(f, x, mask, exposure).sum(1)
            for j in range(self.n_features):
                one = f.clone()
                one[..., j] = other[..., j]
                lost = best - likelihood.log_prob(one, x, mask, exposure).sum(1)
                clear = lost.abs() > 5  # a gain may refit the noise, so that close ones may differ
                assert (gain[:, j].sign() == lost.sign())[clear].all(), (
                    f"feature_gain of feature {j} is {gain[:, j]}, the log-likelihood lost {lost}"
                )

    def test_gradient(self):
        """Of log_prob in f and in every parameter, against finite differences."""
        likelihood, x = self.ready(n_restarts=2), self.data()
        exposure = self.exposure(likelihood)
        mask = torch.ones_like(x, dtype=torch.bool)
        mask[0, 1] = False
        f = self.predictor(2).requires_grad_()
        leaves = [f, *likelihood.parameters()]
        rows = likelihood.log_prob(f, x, mask, exposure).sum()
        analytic = torch.autograd.grad(rows, leaves)
        step = 1e-5
        with torch.no_grad():
            for leaf, gradient in zip(leaves, analytic, strict=True):
                flat = leaf.view(-1)
                for i in range(len(flat)):
                    here = float(flat[i])
                    ends = []
                    for side in (step, -step):
                        flat[i] = here + side
                        ends.append(float(likelihood.log_prob(f, x, mask, exposure).sum()))
                    flat[i] = here
                    numeric = (ends[0] - ends[1]) / (2 * step)
                    _close(gradient.view(-1)[i], numeric, 1e-5 * (1 + abs(numeric)), f"gradient entry {i}")

    def test_extreme_predictors_stay_finite(self):
        """f = ±1000 gives finite values and gradients in float32."""
        likelihood = self.ready(dtype=torch.float32)
        x = self.data().float()
        for size in (-1e3, 0.0, 1e3):
            f = torch.full((1, *x.shape), size).requires_grad_()
            value = likelihood.log_prob(f, x, None, None)
            assert torch.isfinite(value).all(), f"log_prob at f={size} is {value}"
            (gradient,) = torch.autograd.grad(value.sum(), f)
            assert torch.isfinite(gradient).all(), f"gradient at f={size} is {gradient}"

    def test_mean_is_the_expectation(self):
        """`mean` against the average of many draws, to five standard errors."""
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(4)
            likelihood, f = self.ready(n_restarts=2), self.predictor(2)
            exposure = self.exposure(likelihood)
            draws = likelihood.observation(f, exposure=exposure).sample((4000,))
            assert draws.shape == (4000, 2, self.n_rows, self.n_features), f"sample has shape {draws.shape}"
            error = (draws.mean(0) - likelihood.mean(f, exposure)).abs()
            allowed = 5 * draws.std(0) / 4000**0.5 + 5e-3
            assert (error < allowed).all(), (
                f"mean() is off by {error.max():.3g}, expected < {allowed.max():.3g}"
            )

    # ---- missing cells -----------------------------------------------------------------------------------
    def test_masking_is_dropping(self):
        """A masked row has the log-likelihood of the same row in the smaller table; an empty row has 0."""
        with torch.no_grad():
            likelihood, f, x = self.ready(n_restarts=2), self.predictor(2), self.data()
            exposure = self.exposure(likelihood)
            mask = torch.rand(x.shape, generator=torch.Generator().manual_seed(5)) < 0.6
            mask[0], mask[1] = False, True
            got = likelihood.log_prob(f, x, mask, exposure)
            holes = torch.where(mask, x, torch.full_like(x, np.nan))
            _close(likelihood.log_prob(f, holes, None, exposure), got, 1e-12, "NaN instead of a mask")
            _close(likelihood.log_prob(f, holes, mask.to(x), exposure), got, 1e-12, "mask of 0 and 1")
            junk = torch.where(mask, x, 1 - x)
            _close(likelihood.log_prob(f, junk, mask, exposure), got, 1e-12, "other values behind the mask")
            _close(got[:, 0], 0.0, 1e-12, "a row without any cell")
            for i in range(1, self.n_rows):
                kept = mask[i].nonzero().flatten()
                small = self.ready(max(len(kept), 1), n_restarts=2)
                for a, b in zip(small.parameters(), likelihood.parameters(), strict=True):
                    a.copy_(b if b.shape[-1] == 1 else b[..., kept])
                row = None if exposure is None else exposure[i : i + 1]
                want = small.log_prob(f[:, i : i + 1, kept], x[i : i + 1, kept], None, row)
                _close(got[:, i : i + 1], want, 1e-12, f"row {i} against the smaller table")

    def test_masked_cells_pass_no_gradient(self):
        """NaN behind the mask reaches neither f nor the parameters."""
        likelihood, x = self.ready(), self.data()
        x[0, 0] = np.nan
        f = self.predictor().requires_grad_()
        leaves = [f, *likelihood.parameters()]
        exposure = self.exposure(likelihood)
        for gradient in torch.autograd.grad(likelihood.log_prob(f, x, None, exposure).sum(), leaves):
            assert torch.isfinite(gradient).all(), "a missing cell put NaN into a gradient"
        (gradient,) = torch.autograd.grad(likelihood.log_prob(f, x, None, exposure).sum(), f)
        assert gradient[0, 0, 0] == 0, "the predictor of a missing cell has a gradient"

    # ---- shapes ------------------------------------------------------------------------------------------
    def test_shapes_and_dtypes(self):
        """Restarts 1, 2, 7 in float32 and float64; own parameters (R, 1, G or 1); priors batch (R,)."""
        x = self.data()
        for n_restarts, dtype in itertools.product((1, 2, 7), (torch.float32, torch.float64)):
            likelihood = self.ready(n_restarts=n_restarts, dtype=dtype)
            exposure = self.exposure(likelihood)
            exposure = None if exposure is None else exposure.to(dtype)
            f, data = self.predictor(n_restarts).to(dtype), x.to(dtype)
            rows, cells = (n_restarts, self.n_rows), (n_restarts, self.n_rows, self.n_features)
            logp, mean = likelihood.log_prob(f, data, None, exposure), likelihood.mean(f, exposure)
            assert logp.shape == rows and logp.dtype == dtype, f"log_prob is {logp.shape} {logp.dtype}"
            assert mean.shape == cells and mean.dtype == dtype, f"mean is {mean.shape} {mean.dtype}"
            site = likelihood.observation(f, torch.ones_like(data, dtype=torch.bool), exposure)
            assert site.batch_shape == rows, f"observation has batch shape {site.batch_shape}"
            assert site.event_shape == (self.n_features,), f"observation has event shape {site.event_shape}"
            for name, p in likelihood.named_parameters():
                shapes = [(n_restarts, 1, n) for n in (self.n_features, 1)]  # one for all features
                assert p.shape in shapes, f"parameter {name} has shape {p.shape}"
            priors, values = likelihood.priors(), likelihood.values()
            assert priors.keys() == values.keys(), f"priors {list(priors)} and values {list(values)} differ"
            for name, prior in priors.items():
                density = prior.log_prob(values[name])
                assert density.shape == (n_restarts,), f"prior of {name} has batch shape {density.shape}"
                assert torch.isfinite(density).all(), f"prior of {name} is {density} at its starting value"
            noise = likelihood.noise_sd()
            assert noise is None or noise.shape == (n_restarts, 1, self.n_features), (
                f"noise_sd is {noise.shape}"
            )
            if noise is not None and "sigma2" in values:
                same = torch.allclose(values["sigma2"].expand(n_restarts, -1), noise.squeeze(1) ** 2)
                assert same, "values() says another sigma2 than noise_sd() squared"

    def test_restarts_do_not_mix(self):
        """Row values of restart 1 are those of restart 1 alone."""
        with torch.no_grad():
            both, one, f, x = self.ready(n_restarts=2), self.ready(), self.predictor(2), self.data()
            for a, b in zip(one.parameters(), both.parameters(), strict=True):
                a.copy_(b[1:])
            exposure = self.exposure(both)
            got, want = both.log_prob(f, x, None, exposure), one.log_prob(f[1:], x, None, exposure)
            _close(got[1:], want, 1e-12, "restart 1")

    def test_state_round_trip(self):
        """A state_dict brings back the same log-likelihood."""
        with torch.no_grad():
            likelihood, f, x = self.ready(), self.predictor(), self.data()
            likelihood.calibrate(x)
            twin = self.make()
            twin.setup(self.n_features, 1)
            twin.double()
            twin.load_state_dict(likelihood.state_dict())
            exposure = likelihood.default_exposure(x[:3])
            again = twin.default_exposure(x[:3])
            assert (exposure is None) == (again is None), "default_exposure is lost"
            if exposure is not None:
                _close(again, exposure, 1e-12, "default_exposure")
            _close(twin.log_prob(f, x), likelihood.log_prob(f, x), 0.0, "log_prob")

    # ---- data --------------------------------------------------------------------------------------------
    def test_start_is_near_the_best_intercept(self):
        """Moving any one intercept by half a unit does not raise the log-likelihood."""
        with torch.no_grad():
            likelihood, x = self.ready(), self.data(400)
            x[5, 0] = np.nan
            start = likelihood.start(x)
            assert start.shape == (self.n_features,), f"start has shape {start.shape}"
            exposure = likelihood.default_exposure(x)
            here = likelihood.log_prob(start.expand(1, *x.shape), x, None, exposure).sum()
            for j, side in itertools.product(range(self.n_features), (-0.5, 0.5)):
                moved = start.clone()
                moved[j] += side
                there = likelihood.log_prob(moved.expand(1, *x.shape), x, None, exposure).sum()
                assert there <= here, f"intercept {j} is better by {there - here:.3g} nats at {side:+}"
            _close(likelihood.start(x.numpy()), start, 1e-12, "start of a numpy array")

    def test_encoder_view(self):
        """What the encoder reads is finite where a cell was seen, NaN where not, and tells rows apart."""
        x = self.data(200)
        x[3, 1] = np.nan
        likelihood = self.ready()
        view = likelihood.encoder_view(x, likelihood.default_exposure(x))
        assert view.shape == x.shape, f"encoder_view has shape {view.shape}, the data {x.shape}"
        assert torch.equal(torch.isfinite(view), torch.isfinite(x)), "finite where seen, NaN where missing"
        assert (np.nanstd(view.numpy(), 0) > 0).all(), "a column became constant"

    def test_check(self):
        """Valid data pass, NaN included; bad values are refused with the column's name and the value."""
        x = self.data().numpy()
        x[0, 0] = np.nan
        names = [f"feature {c}" for c in "abcdefgh"[: self.n_features]]
        self.ready().check(x, names)
        for value in (np.inf, -np.inf, *self.bad_values):
            bad = x.copy()
            bad[2, 1] = value
            self._refused(bad, names, f"{value:g}")
        words = x.astype(object)
        words[2, 1] = "seven"
        self._refused(words, names, "seven")

    def _refused(self, x: np.ndarray, names: list[str], value: str) -> None:
        try:
            self.ready().check(x, names)
        except ValueError as error:
            for word in (names[1], value):
                assert word in str(error), f"the message does not name {word!r}: {error}"
        else:
            raise AssertionError(f"check accepted {value} in column {names[1]!r}")


def _close(got, want, tolerance: float, what: str) -> None:
    np.testing.assert_allclose(
        np.asarray(got), np.asarray(want), rtol=tolerance, atol=tolerance, err_msg=what
    )
