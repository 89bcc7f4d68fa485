"""The bound written out against the bound traced from two Pyro programs, gradients against autograd's."""

from __future__ import annotations

import pyro
import pyro.distributions as dist
import pytest
import torch

from pyro_sparse import likelihoods
from pyro_sparse.data.read import Batch
from pyro_sparse.inference.table import _compiled_elbo
from pyro_sparse.inference.table.schedule import Schedule
from pyro_sparse.inference.table.sparse_elbo import SparseElbo, has_closed_form
from pyro_sparse.inference.table.sparse_run import SparseRun
from pyro_sparse.inference.training.elbo import elbo_by_restart
from pyro_sparse.likelihoods.base import NOTHING
from pyro_sparse.models import SparseDecoder
from pyro_sparse.priors import ARDNormal, Horseshoe, Laplace, SpikeSlabLasso
from pyro_sparse.rivals import VAE

R, N, G, K = 3, 30, 6, 2
needs_numba = pytest.mark.skipif(not _compiled_elbo.COMPILED, reason="the extra 'fast' is not installed")
LIKELIHOODS = ("normal", "bernoulli", "poisson", "negative_binomial", "multinomial", "categorical")


def batch_of(likelihood="normal", missing=False, dtype=torch.float64, rows=11):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(rows, G, generator=generator, dtype=dtype)
    inputs = x.clone()
    if likelihood in ("bernoulli", "categorical"):
        x = (x > 0).to(dtype)
    elif likelihood != "normal":
        x = (2 * x.abs()).round()
    mask = torch.rand(rows, G, generator=generator) > 0.3 if missing else None
    if mask is not None:
        x, inputs = x * mask, inputs * mask
    per_row = {}
    if likelihood != "normal":
        per_row["exposure"] = 1 + torch.rand(rows, 1, generator=generator, dtype=dtype)
    return Batch(x, inputs, mask, N, per_row=per_row)


def model_of(missing=False, dtype=torch.float64, cls=SparseDecoder, **options):
    torch.manual_seed(0)
    model = cls(G, K, **{"hidden": 8, "encoder_hidden": 9, **options})
    model.setup(R, N, missing)
    model.to(dtype)
    with torch.no_grad():
        for part in model.parameters():
            part.add_(0.3 * torch.randn_like(part))
        model.encoder.log_sd.bias.add_(torch.linspace(-6, 6, K))  # beyond both ends of its range
        model.factor_cov[:, 0, 1] = model.factor_cov[:, 1, 0] = 0.4
        model.project()
    model.kl_weight, model.compiled = 0.7, False
    return model


@pytest.fixture
def interpreted(monkeypatch):
    """The compiled functions as the Python they were made of."""
    for name, function in list(vars(_compiled_elbo).items()):
        if hasattr(function, "py_func"):
            monkeypatch.setattr(_compiled_elbo, name, function.py_func)
    monkeypatch.setattr(_compiled_elbo, "COMPILED", True)


def both(model, batch, skip=("W",), factor=-0.3):
    """Value, gradients and the next random number: traced, and written out."""
    torch.manual_seed(1)
    value = elbo_by_restart(model.model, model.guide, batch, R, skip)
    wanted = [p for p in model.parameters() if p.requires_grad]
    slopes = torch.autograd.grad(factor * value.sum(), wanted, materialize_grads=True)
    traced = value.detach(), dict(zip(wanted, slopes, strict=True)), torch.rand(())
    torch.manual_seed(1)
    bound = SparseElbo(model)
    assert bound.covers(batch, skip)
    found, gradients = bound(batch, skip, factor)
    return traced, (found, dict(zip(bound.parameters, gradients, strict=True)), torch.rand(()))


def check(model, batch, skip=("W",), tolerance=1e-10):
    (value, slopes, random), (found, own, own_random) = both(model, batch, skip)
    torch.testing.assert_close(found, value, rtol=tolerance, atol=0)
    assert own_random == random  # the same draws, no other
    for name, p in model.named_parameters():
        if p in slopes:
            a, b = own.get(p, torch.zeros_like(p)), slopes[p]
            assert a.shape == p.shape and a.dtype == p.dtype and a.is_contiguous(), name
            close = max(10 * tolerance, 1e-9 if p.dtype == torch.float64 else 1e-5)
            torch.testing.assert_close(a, b, rtol=close, atol=close * float(b.abs().max()), msg=name)


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("decoder", ["mlp", "linear"])
@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_it_is_the_bound_of_the_programs(likelihood, decoder, missing):
    model = model_of(missing, likelihood=likelihood, decoder=decoder)
    batch = batch_of(likelihood, missing)
    check(model, batch)
    check(model, batch, skip=())


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_in_single_precision(likelihood):
    check(
        model_of(dtype=torch.float32, likelihood=likelihood),
        batch_of(likelihood, dtype=torch.float32),
        tolerance=5e-6,  # sums of thousands in single precision: 1.3e-6 on one kind of processor
    )


@pytest.mark.parametrize(
    "options",
    [
        {"activation": "tanh"},
        {"factor_cov": False, "anchors": {0: 1}, "forbidden": [(2, 0)]},
        {"likelihood": likelihoods.Normal(shared=True)},
        {"prior": Horseshoe(), "forbidden": [(1, 1)]},
        {"prior": Laplace()},
        {"prior": ARDNormal()},
        {"prior": SpikeSlabLasso(eta="global")},
    ],
)
@pytest.mark.parametrize("missing", [False, True])
def test_options_of_the_model(options, missing):
    model = model_of(missing, **options)
    for skip in (("W",), ()):
        check(model, batch_of(missing=missing), skip)


@pytest.mark.parametrize("options", [{}, {"likelihood": "poisson"}, {"forbidden": [(0, 1), (2, 0), (2, 1)]}])
@pytest.mark.parametrize("missing", [False, True])
def test_what_is_compiled(options, missing, interpreted, monkeypatch):
    """In double precision without the compiler; products in several pieces."""
    monkeypatch.setattr(_compiled_elbo, "_ONE_THREAD", 500)
    monkeypatch.setattr(_compiled_elbo, "_FEWEST_ROWS", 5)
    model = model_of(missing, **options)
    model.compiled = True
    assert SparseElbo(model).compiled is not None
    for skip in (("W",), ()):
        check(model, batch_of(options.get("likelihood", "normal"), missing), skip)


@needs_numba
def test_machine_code():
    model = model_of(dtype=torch.float32)
    model.compiled = True
    assert SparseElbo(model).compiled is not None
    check(model, batch_of(dtype=torch.float32), tolerance=1e-6)


def test_what_is_not_compiled(interpreted):
    for options in ({"activation": "tanh"}, {"decoder": "linear"}, {"hidden": 200}, {"encoder_hidden": 200}):
        model = model_of(**options)
        model.compiled = True
        assert SparseElbo(model).compiled is None, options
    assert SparseElbo(model_of()).compiled is None


@pytest.mark.parametrize("likelihood", ["normal", "poisson", "negative_binomial"])
def test_a_few_features_at_a_time(likelihood, monkeypatch):
    monkeypatch.setattr("pyro_sparse.models.sparse_decoder.CHUNKED_FROM", 1.0)
    model, batch = model_of(likelihood=likelihood), batch_of(likelihood)
    with torch.no_grad():
        model.weights[:, 0] = torch.tensor([1.0, 0.0])
        model.allowed[:, 0, 1] = False
    assert model.in_chunks(torch.zeros(R, 11, K))
    check(model, batch)
    check(model, batch, skip=())


def test_coupled_rows_in_chunks_are_left_to_the_trace(monkeypatch):
    monkeypatch.setattr("pyro_sparse.models.sparse_decoder.CHUNKED_FROM", 1.0)
    bound = SparseElbo(model_of(likelihood="multinomial"))
    assert not bound.covers(batch_of("multinomial"), ("W",))
    assert not SparseElbo(model_of()).covers(batch_of(), ("x",))


def test_frozen_parameters_get_no_gradient():
    model = model_of()
    model.decoder.head.requires_grad_(False)
    model.likelihood.log_sigma.requires_grad_(False)
    check(model, batch_of())
    run = SparseRun(model, batch_of(rows=N), None, Schedule(steps=3, batch_size=10))
    for _ in range(2):
        run.advance()
    assert model.decoder.head.grad is None and model.likelihood.log_sigma.grad is None
    assert model.decoder.first.grad is not None


def test_a_likelihood_of_another_kind():
    """Its programs are followed, also where its base class knows a closed form."""

    class Heavy(likelihoods.Normal):
        def forward(self, f, per_row=NOTHING):
            return dist.StudentT(4.0, f, self._sd())

    check(model_of(likelihood=Heavy()), batch_of())


def test_what_is_not_finite_is_named():
    model = model_of()
    with torch.no_grad():
        model.decoder.intercept[1] = float("nan")
    with pytest.raises(FloatingPointError, match=r"site 'x' .* in restart\(s\) \[1\]"):
        SparseElbo(model)(batch_of())


def test_programs_of_a_subclass_are_traced():
    class Own(SparseDecoder):
        def guide(self, batch):
            self.traced = True
            super().guide(batch)

    class Ridge(Laplace):
        def forward(self):
            pyro.sample("rate", dist.Gamma(1.0, 1.0).expand([R]))
            return super().forward()

    class Learned(Laplace):
        def allocate(self):
            super().allocate()
            self.size = torch.nn.Parameter(torch.ones(()))

    assert has_closed_form(model_of())
    assert not has_closed_form(model_of(prior=Learned()))
    assert not has_closed_form(model_of(prior=Ridge()))
    assert not has_closed_form(model_of(cls=VAE))
    hooked = model_of()
    hooked.decoder.register_forward_hook(lambda *given: None)
    patched = model_of()
    patched.decode = lambda z, weights: patched.decoder(z, weights)
    assert not has_closed_form(hooked) and not has_closed_form(patched)
    model = model_of(dtype=torch.float32, cls=Own)
    run = SparseRun(model, batch_of(dtype=torch.float32, rows=N), None, Schedule(steps=3, batch_size=10))
    run.advance()
    model.traced = False
    run.advance()
    assert model.traced


def test_a_fit_is_that_of_the_trace(monkeypatch):
    """The first steps of a run, with the bound written out and traced."""

    def parameters():
        run = SparseRun(model_of(), batch_of(rows=N), None, Schedule(steps=40, batch_size=10, lasso_from=0.1))
        for _ in range(12):
            run.advance()
        return {name: p.detach().clone() for name, p in run.model.named_parameters()}

    own = parameters()
    monkeypatch.setattr("pyro_sparse.inference.table.sparse_run.has_closed_form", lambda model: False)
    for name, traced in parameters().items():
        torch.testing.assert_close(own[name], traced, rtol=1e-6, atol=1e-7, msg=name)
