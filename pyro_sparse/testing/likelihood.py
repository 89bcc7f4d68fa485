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
import math
from typing import TYPE_CHECKING

import numpy as np
import torch
from scipy.integrate import simpson
from torch import Tensor
from torch.distributions import biject_to
from torch.distributions.transforms import identity_transform

from .._utils.signatures import signature_misfits
from ..likelihoods import Likelihood
from ..likelihoods.base import PerRow

if TYPE_CHECKING:
    from pyro.distributions import TorchDistribution

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

    def per_row(self, likelihood: Likelihood, n_rows: int | None = None) -> dict[str, Tensor]:
        """What the likelihood reads of rows, (B, 1) by name, all unequal."""
        unequal = torch.arange(3.0, 3.0 + (n_rows or self.n_rows), dtype=torch.float64).unsqueeze(-1)
        return {name: unequal for name in likelihood.per_row_inputs}

    def data(self, n_rows: int | None = None, n_features: int | None = None) -> Tensor:
        """Valid data (B, G), no cell missing: default a draw from the likelihood itself."""
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(2)
            likelihood = self.ready(n_features)
            f = self.predictor(1, n_rows, n_features)
            return likelihood.observation(f, per_row=self.per_row(likelihood, n_rows)).sample()[0]

    def test_signatures(self):
        """Methods take the arguments that the package calls them with."""
        misfits = signature_misfits(self.make(), Likelihood)
        assert not misfits, "\n".join(misfits)

    # ---- the density -------------------------------------------------------------------------------------
    def test_log_prob_is_that_of_the_observation(self):
        """Programs draw rows from `observation`, tables are judged by `log_prob`: one density, masked too."""
        with torch.no_grad():
            likelihood, f, x = self.ready(n_restarts=2), self.predictor(2), self.data()
            per_row = self.per_row(likelihood)
            mask = torch.rand(x.shape, generator=torch.Generator().manual_seed(5)) < 0.6
            for observed in (None, mask):
                filled = (
                    x if observed is None else torch.where(observed, x, torch.full_like(x, likelihood.filler))
                )
                want = likelihood.observation(f, observed, per_row).log_prob(filled)
                log_prob = likelihood.log_prob(f, x, observed, per_row)
                _close(log_prob, want, 1e-9, "log_prob, the density of observation")

    def test_density_sums_to_one(self):
        """Sum, or quadrature, of exp(log_prob) over everything a row may be."""
        with torch.no_grad():
            likelihood, f = self.ready(3), self.predictor(1, 1, 3)
            cells = likelihood(f, self.per_row(likelihood, 1))
            if len(cells.event_shape):
                rows = [r for r in itertools.product(range(5), repeat=3) if sum(r) == 4]
                x = torch.tensor(rows, dtype=torch.float64)
                _close(likelihood.log_prob(f.expand(1, len(x), 3), x).exp().sum(), 1.0, 1e-9, "density")
                return
            for j in range(3):
                total = self._summed if cells.support.is_discrete else self._integrated
                _close(total(likelihood, f, cells, j), 1.0, 1e-6, f"density of feature {j}")

    def _summed(self, likelihood: Likelihood, f: Tensor, cells: TorchDistribution, j: int) -> float:
        """Sum of the density of feature j over the whole numbers in its support, 60 sd to either side."""
        mean, far = float(cells.mean[0, 0, j]), 60 * float(cells.stddev[0, 0, j]) + 60
        values = torch.arange(math.floor(mean - far), math.ceil(mean + far), dtype=torch.float64)
        values = values[cells.support.check(values[:, None, None].expand(-1, *f.shape[1:]))[:, 0, j]]
        x = torch.zeros(len(values), f.shape[-1], dtype=torch.float64)
        x[:, j] = values
        return float(likelihood.log_prob(*self._only(f, x, j, likelihood)).exp().sum())

    def _integrated(self, likelihood: Likelihood, f: Tensor, cells: TorchDistribution, j: int) -> float:
        """Integral of the density of feature j over its support, x = T(y) with y on the whole line.

        y = c + s sinh t, c and s from mean and standard deviation where these are finite: even steps of t see
        the bulk, and tails of any length. Where dx/dy leaves the floating-point numbers there is nothing.
        """
        to = biject_to(cells.support)
        centre = torch.nan_to_num(to.inv(cells.mean), 0.0, 0.0, 0.0)
        size = (cells.stddev.log() - to.log_abs_det_jacobian(centre, to(centre))).exp()
        size = torch.where(torch.isfinite(size) & (size > 0), size, 1.0)
        if to is not identity_transform:
            size = size.clamp(max=1.0)  # y is a logarithm
        t = torch.linspace(-70, 70, 200_001, dtype=torch.float64)[:, None, None]
        y = centre + size * t.sinh()
        inside = to.log_abs_det_jacobian(y, to(y)).abs() < 700
        y = torch.where(inside, y, centre)
        slope = to.log_abs_det_jacobian(y, to(y)) + (size * t.cosh()).log()
        arguments = self._only(f, to(y)[:, 0], j, likelihood)
        density = (likelihood.log_prob(*arguments)[0] + slope[:, 0, j]).exp()
        return float(simpson(torch.where(inside[:, 0, j], density, 0.0), x=t.flatten()))

    def _only(self, f: Tensor, x: Tensor, j: int, likelihood: Likelihood):
        mask = torch.zeros(x.shape, dtype=torch.bool)
        mask[:, j] = True
        return f.expand(1, len(x), -1), x, mask, self.per_row(likelihood, 1)

    def test_score(self):
        """If cells are separable: rows are sums of them, the derivative in closed form, cells one by one."""
        likelihood, x = self.ready(n_restarts=2), self.data()
        if not likelihood.separable:
            return
        per_row, f = self.per_row(likelihood), 3 * self.predictor(2).requires_grad_()
        cells = likelihood(f, per_row).log_prob(x)
        (expected,) = torch.autograd.grad(cells.sum(), f)
        rows = cells.detach().sum(-1)
        site = likelihood.observation(f.detach(), per_row=per_row)
        _close(site.log_prob(x).detach(), rows, 1e-9, "observation of a separable likelihood, forward summed")
        own_rows = likelihood.log_prob(f.detach(), x, None, per_row).detach()
        _close(own_rows, rows, 1e-9, "log_prob of a separable likelihood, forward summed")
        score = likelihood.scorer(per_row)
        for r in range(2):
            for features in (torch.tensor([2, 0]), torch.tensor([1])):
                if score is not None:
                    derivative = score(f[r].mT[features], x.mT[features], r, features)
                    _close(derivative.detach(), expected[r].mT[features], 1e-9, "scorer")
                moved = f.detach().clone()
                moved[..., [j for j in range(f.shape[-1]) if j not in features]] += 1.0
                cells = [
                    likelihood(g.detach(), per_row).log_prob(x)[r][:, features].detach() for g in (f, moved)
                ]
                _close(cells[1], cells[0], 1e-12, "log_prob of a separable likelihood")

    def test_slopes(self):
        """Values and gradients as fits take them against autograd, with a mask and other weights, too."""
        likelihood, x, f = self.ready(n_restarts=2), self.data(), self.predictor(2)
        per_row, names = self.per_row(likelihood), [name for name, _ in likelihood.named_parameters()]
        mask = torch.rand(x.shape, generator=torch.Generator().manual_seed(5)) < 0.6
        for observed, weights in itertools.product((None, mask), ((1.0, 1.0), (3.0, 0.4))):
            slopes = likelihood.closed_slopes()(f, x, observed, per_row, *weights)
            wanted = Likelihood.slopes(likelihood, f, x, observed, per_row, *weights)
            assert slopes.terms.keys() == wanted.terms.keys(), f"slopes has the terms {list(slopes.terms)}"
            for name, term in wanted.terms.items():
                _close(slopes.terms[name], term, 1e-9, f"term {name} of slopes")
            _close(slopes.by_f, wanted.by_f, 1e-9, "slopes by f")
            for name, got, want in zip(names, slopes.by_parameters, wanted.by_parameters, strict=True):
                _close(got, want, 1e-9, f"slopes by {name}")

    def test_feature_gain(self):
        """Statistics add up over rows; a gain is the log-likelihood lost, the noise refitted or as it is."""
        with torch.no_grad():
            likelihood, x, f = self.ready(n_restarts=2), self.data(40), self.predictor(1, 40).repeat(2, 1, 1)
            per_row = self.per_row(likelihood, 40)
            mask = torch.rand(x.shape, generator=torch.Generator().manual_seed(5)) < 0.6

            def statistic(g: Tensor, rows: slice = slice(None)) -> Tensor:
                some_rows = {name: values[rows] for name, values in per_row.items()}
                return likelihood.feature_statistic(g[:, rows], f[:, rows], x[rows], mask[rows], some_rows)

            shifted = f + torch.tensor([3.0, -3.0], dtype=f.dtype).reshape(2, 1, 1)
            full, reduced = statistic(f), statistic(shifted)
            summed = statistic(shifted, slice(15)) + statistic(shifted, slice(15, None))
            _close(summed, reduced, 1e-9, "feature_statistic of all rows")
            _close(likelihood.feature_gain(full, full), 0.0, 1e-12, "feature_gain of nothing")
            never = likelihood.feature_statistic(f, f, x, torch.zeros_like(mask), per_row)
            _close(likelihood.feature_gain(never, never), 0.0, 1e-12, "feature_gain of features never seen")
            gain = likelihood.feature_gain(full, reduced)
            assert gain.shape == (2, self.n_features), f"feature_gain has shape {gain.shape}"
            best = likelihood.log_prob(f, x, mask, per_row).sum(1)
            for j in range(self.n_features):
                shifted_j = f.clone()
                shifted_j[..., j] = shifted[..., j]
                lost = best - likelihood.log_prob(shifted_j, x, mask, per_row).sum(1)
                if torch.allclose(gain[:, j], lost, rtol=1e-6, atol=1e-6):
                    continue
                column = slice(j, j + 1)
                cells = x[:, column], mask[:, column], per_row
                refitted = self._refitted(f[..., column], *cells) - self._refitted(
                    shifted[..., column], *cells
                )
                assert torch.allclose(gain[:, j], refitted, rtol=0.02, atol=0.1), (
                    f"feature_gain of feature {j} is {gain[:, j]}, the log-likelihood lost {lost}, or "
                    f"{refitted} with its parameters refitted"
                )

    def _refitted(self, f: Tensor, x: Tensor, mask: Tensor, per_row: PerRow) -> Tensor:
        """Log-likelihood (R,) of a table of one feature, at the likelihood's parameters that suit it best."""
        likelihood = self.ready(1, n_restarts=len(f))
        if leaves := list(likelihood.parameters()):
            optimiser = torch.optim.LBFGS(leaves, max_iter=200, line_search_fn="strong_wolfe")

            def loss() -> Tensor:
                optimiser.zero_grad()
                with torch.enable_grad():
                    value = -likelihood.log_prob(f, x, mask, per_row).sum()
                value.backward()
                return value

            optimiser.step(loss)
        return likelihood.log_prob(f, x, mask, per_row).sum(1)

    def test_gradient(self):
        """Of log_prob in f and in every parameter, against finite differences."""
        likelihood, x = self.ready(n_restarts=2), self.data()
        per_row = self.per_row(likelihood)
        mask = torch.ones_like(x, dtype=torch.bool)
        mask[0, 1] = False
        f = self.predictor(2).requires_grad_()
        leaves = [f, *likelihood.parameters()]
        rows = likelihood.log_prob(f, x, mask, per_row).sum()
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
                        ends.append(float(likelihood.log_prob(f, x, mask, per_row).sum()))
                    flat[i] = here
                    numeric = (ends[0] - ends[1]) / (2 * step)
                    _close(gradient.reshape(-1)[i], numeric, 1e-5 * (1 + abs(numeric)), f"gradient entry {i}")

    def test_extreme_predictors_stay_finite(self):
        """f = ±1000 gives finite values and gradients in float32."""
        likelihood = self.ready(dtype=torch.float32)
        x = self.data().float()
        for size in (-1e3, 0.0, 1e3):
            f = torch.full((1, *x.shape), size).requires_grad_()
            value = likelihood.log_prob(f, x)
            assert torch.isfinite(value).all(), f"log_prob at f={size} is {value}"
            (gradient,) = torch.autograd.grad(value.sum(), f)
            assert torch.isfinite(gradient).all(), f"gradient at f={size} is {gradient}"

    def test_mean_is_the_expectation(self):
        """`mean` against the average of many draws, to five standard errors."""
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(4)
            likelihood, f = self.ready(n_restarts=2), self.predictor(2)
            per_row = self.per_row(likelihood)
            draws = likelihood.observation(f, per_row=per_row).sample((4000,))
            assert draws.shape == (4000, 2, self.n_rows, self.n_features), f"sample has shape {draws.shape}"
            error = (draws.mean(0) - likelihood.mean(f, per_row)).abs()
            allowed = 5 * draws.std(0) / 4000**0.5 + 5e-3
            assert (error < allowed).all(), (
                f"mean() is off by {error.max():.3g}, expected < {allowed.max():.3g}"
            )

    # ---- missing cells -----------------------------------------------------------------------------------
    def test_masking_is_dropping(self):
        """A masked row has the log-likelihood of the same row in the smaller table; an empty row has 0."""
        with torch.no_grad():
            likelihood, f, x = self.ready(n_restarts=2), self.predictor(2), self.data()
            per_row = self.per_row(likelihood)
            mask = torch.rand(x.shape, generator=torch.Generator().manual_seed(5)) < 0.6
            mask[0], mask[1] = False, True
            got = likelihood.log_prob(f, x, mask, per_row)
            holes = torch.where(mask, x, torch.full_like(x, np.nan))
            _close(likelihood.log_prob(f, holes, None, per_row), got, 1e-12, "NaN instead of a mask")
            _close(likelihood.log_prob(f, holes, mask.to(x), per_row), got, 1e-12, "mask of 0 and 1")
            junk = torch.where(mask, x, 1 - x)
            _close(likelihood.log_prob(f, junk, mask, per_row), got, 1e-12, "other values behind the mask")
            _close(got[:, 0], 0.0, 1e-12, "a row without any cell")
            for i in range(1, self.n_rows):
                kept = mask[i].nonzero().flatten()
                small = self._columns(likelihood, kept)
                row = {name: values[i : i + 1] for name, values in per_row.items()}
                want = small.log_prob(f[:, i : i + 1, kept], x[i : i + 1, kept], None, row)
                _close(got[:, i : i + 1], want, 1e-12, f"row {i} against the smaller table")

    def test_feature_statistic_of_missing_cells(self):
        """They do not matter, whatever they hold: each row's statistic is that of the smaller table."""
        with torch.no_grad():
            likelihood, x, f = self.ready(n_restarts=2), self.data(), self.predictor(2)
            per_row = self.per_row(likelihood)
            mask = torch.rand(x.shape, generator=torch.Generator().manual_seed(5)) < 0.6
            got = likelihood.feature_statistic(f + 0.5, f, x, mask, per_row)
            for hidden in (1 - x, torch.full_like(x, np.nan)):
                masked = torch.where(mask, x, hidden)
                statistic = likelihood.feature_statistic(f + 0.5, f, masked, mask, per_row)
                _close(statistic, got, 1e-12, "feature_statistic, other values behind the mask")
            statistic = likelihood.feature_statistic(f + 0.5, f, masked, None, per_row)
            _close(statistic, got, 1e-12, "feature_statistic, NaN instead of a mask")
            want = torch.zeros_like(got)
            for i in range(self.n_rows):
                kept = mask[i].nonzero().flatten()
                if len(kept) == 0:
                    continue
                small = self._columns(likelihood, kept)
                cells = f[:, i : i + 1, kept]
                row = {name: values[i : i + 1] for name, values in per_row.items()}
                want[:, kept] += small.feature_statistic(cells + 0.5, cells, x[i : i + 1, kept], None, row)
            _close(got, want, 1e-9, "feature_statistic against the smaller table")

    def _columns(self, likelihood: Likelihood, kept: Tensor) -> Likelihood:
        """The likelihood of these features only, two restarts."""
        small = self.ready(max(len(kept), 1), n_restarts=2)
        for a, b in zip(small.parameters(), likelihood.parameters(), strict=True):
            a.copy_(b if b.shape[-1] == 1 else b[..., kept])
        return small

    def test_filler(self):
        """What missing cells hold has a finite density, and does not matter where it is left out."""
        likelihood, x = self.ready(n_restarts=2), self.data()
        filler, per_row = likelihood.filler, self.per_row(likelihood)
        mask = torch.rand(x.shape, generator=torch.Generator().manual_seed(5)) < 0.6
        filled = torch.where(mask, x, torch.full_like(x, filler))
        f = self.predictor(2).requires_grad_()
        leaves = [f, *likelihood.parameters()]
        try:
            rows = likelihood.observation(f, mask, per_row).log_prob(filled)
        except ValueError as error:
            raise AssertionError(f"filler = {filler:g} is no value that a cell may have: {error}") from error
        _close(rows.detach(), likelihood.log_prob(f, x, mask, per_row).detach(), 1e-12, "rows with filler")
        at_filler = likelihood.log_prob(f, torch.full_like(x, filler), None, per_row)
        assert torch.isfinite(at_filler).all(), f"log_prob of filler = {filler:g} is {at_filler}"
        for gradient in torch.autograd.grad(at_filler.sum(), leaves):
            assert torch.isfinite(gradient).all(), f"log_prob of filler = {filler:g} has no finite gradient"

    def test_masked_cells_pass_no_gradient(self):
        """NaN behind the mask reaches neither f nor the parameters."""
        likelihood, x = self.ready(), self.data()
        x[0, 0] = np.nan
        f = self.predictor().requires_grad_()
        leaves = [f, *likelihood.parameters()]
        per_row = self.per_row(likelihood)
        for gradient in torch.autograd.grad(likelihood.log_prob(f, x, None, per_row).sum(), leaves):
            assert torch.isfinite(gradient).all(), "a missing cell put NaN into a gradient"
        (gradient,) = torch.autograd.grad(likelihood.log_prob(f, x, None, per_row).sum(), f)
        assert gradient[0, 0, 0] == 0, "the predictor of a missing cell has a gradient"

    # ---- shapes ------------------------------------------------------------------------------------------
    def test_shapes_and_dtypes(self):
        """Restarts 1, 2, 7 in float32 and float64; own parameters (R, 1, G or 1); priors batch (R,)."""
        x = self.data()
        for n_restarts, dtype in itertools.product((1, 2, 7), (torch.float32, torch.float64)):
            likelihood = self.ready(n_restarts=n_restarts, dtype=dtype)
            per_row = self.per_row(likelihood)
            per_row = {name: values.to(dtype) for name, values in per_row.items()}
            f, data = self.predictor(n_restarts).to(dtype), x.to(dtype)
            rows, cells = (n_restarts, self.n_rows), (n_restarts, self.n_rows, self.n_features)
            logp, mean = likelihood.log_prob(f, data, None, per_row), likelihood.mean(f, per_row)
            assert logp.shape == rows and logp.dtype == dtype, f"log_prob is {logp.shape} {logp.dtype}"
            assert mean.shape == cells and mean.dtype == dtype, f"mean is {mean.shape} {mean.dtype}"
            site = likelihood.observation(f, torch.ones_like(data, dtype=torch.bool), per_row)
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
            pair, single, f, x = self.ready(n_restarts=2), self.ready(), self.predictor(2), self.data()
            for a, b in zip(single.parameters(), pair.parameters(), strict=True):
                a.copy_(b[1:])
            per_row = self.per_row(pair)
            got, want = pair.log_prob(f, x, None, per_row), single.log_prob(f[1:], x, None, per_row)
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
            per_row = likelihood.default_per_row(x[:3])
            again = twin.default_per_row(x[:3])
            assert per_row.keys() == again.keys(), "default_per_row is lost"
            for name, values in per_row.items():
                _close(again[name], values, 1e-12, f"default_per_row, {name}")
            _close(twin.log_prob(f, x), likelihood.log_prob(f, x), 0.0, "log_prob")

    # ---- data --------------------------------------------------------------------------------------------
    def test_start_is_near_the_best_intercept(self):
        """Moving any one intercept by half a unit does not raise the log-likelihood."""
        with torch.no_grad():
            likelihood, x = self.ready(), self.data(400)
            x[5, 0] = np.nan
            start = likelihood.start(x)
            assert start.shape == (self.n_features,), f"start has shape {start.shape}"
            per_row = likelihood.default_per_row(x)
            here = likelihood.log_prob(start.expand(1, *x.shape), x, None, per_row).sum()
            for j, side in itertools.product(range(self.n_features), (-0.5, 0.5)):
                moved = start.clone()
                moved[j] += side
                there = likelihood.log_prob(moved.expand(1, *x.shape), x, None, per_row).sum()
                assert there <= here, f"intercept {j} is better by {there - here:.3g} nats at {side:+}"
            _close(likelihood.start(x.numpy()), start, 1e-12, "start of a numpy array")

    def test_encoder_view(self):
        """What the encoder reads, row by row: finite where a cell was seen, else NaN, and not constant."""
        x = self.data(200)
        x[3, 1] = np.nan
        likelihood = self.ready()
        likelihood.calibrate(x)
        per_row = likelihood.default_per_row(x)
        view = likelihood.encoder_view(x, per_row)
        some = torch.tensor([150, 3, 4])
        alone = likelihood.encoder_view(x[some], {name: values[some] for name, values in per_row.items()})
        _close(alone, view[some], 1e-9, "encoder_view of some rows against those of the table")
        assert view.shape == x.shape, f"encoder_view has shape {view.shape}, the data {x.shape}"
        assert torch.equal(torch.isfinite(view), torch.isfinite(x)), "finite where seen, NaN where missing"
        assert (np.nanstd(view.numpy(), 0) > 0).all(), "a column became constant"

    def test_default_per_row(self):
        """What rows say of themselves is measured by the table of `calibrate`, not by the one asked about."""
        x = self.data(200)
        x[1, 0] = np.nan
        likelihood = self.ready()
        likelihood.calibrate(x)
        whole, some = likelihood.default_per_row(x), likelihood.default_per_row(x[:3])
        assert whole.keys() == some.keys(), "default_per_row has other names for some rows"
        assert whole.keys() <= set(likelihood.per_row_inputs), "default_per_row has a name not declared"
        for name, values in whole.items():
            assert values.shape == (200, 1), f"default_per_row has {name} of shape {values.shape}"
            _close(some[name], values[:3], 1e-9, f"default_per_row, {name}, of some rows against the table's")

    def test_check(self):
        """Valid data pass, NaN included; bad values are refused with the column's name and the value."""
        x = self.data().numpy()
        centre, scale = self.ready().units(x, False)
        x = x * scale + centre  # a table holds its caller's units
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


def _close(got, want, tolerance: float, quantity: str) -> None:
    np.testing.assert_allclose(
        np.asarray(got), np.asarray(want), rtol=tolerance, atol=tolerance, err_msg=quantity
    )
