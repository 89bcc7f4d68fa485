# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Write your own prior
#
# A prior is a small class here. If a weight comes from one of two densities, a wide one for the edges that
# exist (the slab) and a narrow one for the others (the spike), the class only has to specify the two. The
# rest follows: how probable an edge is, how often there is one, and Markov chains that give calibrated edge
# probabilities.
#
# In our example, loadings are mostly negligible and occasionally very large. The spike-and-slab lasso pulls
# the large ones towards zero; a **Student-t spike and slab** leaves them alone:
#
# $$w_{jk} \mid \eta_k \sim \eta_k\, t_3(0, s_1) + (1 - \eta_k)\, t_3(0, s_0), \qquad
# \eta_k \sim \mathrm{Beta}(1, b).$$

# %%
from unittest import SkipTest

import pyro.distributions as dist
import torch
from scipy import stats

import pyro_sparse as ps
from pyro_sparse.priors import Prior, SpikeSlabPrior

torch.set_num_threads(1)  # small models do not gain from more


# %% [markdown]
# ## The prior
#
# `SpikeSlabPrior` handles the inclusion rates $\eta_k$, their Beta prior (`a`, `b`, or `expected_size`) and
# their update; `components` returns slab and spike.


# %%
class StudentSpikeSlab(SpikeSlabPrior):
    def __init__(self, slab_scale=0.5, spike_scale=0.01, **rates):
        super().__init__(**rates)
        self.slab_scale, self.spike_scale = slab_scale, spike_scale

    def components(self):
        return dist.StudentT(3.0, 0.0, self.slab_scale), dist.StudentT(3.0, 0.0, self.spike_scale)


# %% [markdown]
# ## Is it sound?
#
# `PriorTestCase` compares every piece with an independent computation. It integrates the density and compares
# the gradient with finite differences, draws with the density, the E-step with Bayes' rule, and the M-step
# with a numerical maximiser. It also checks the program's shapes, data types and saved state. You specify how
# to make the prior and, because it has edge probabilities, which mixture it stands for. In your own project
# this class goes into a test file, where `pytest` finds it.


# %%
class TestStudentSpikeSlab(ps.testing.PriorTestCase):
    def make(self):
        return StudentSpikeSlab()

    def by_scipy(self, prior):
        return prior.eta.numpy(), stats.t(3, scale=0.5), stats.t(3, scale=0.01)


def run(case):
    for name in (name for name in dir(case) if name.startswith("test_")):
        try:
            getattr(case, name)()
            print(f"passed   {name}")
        except SkipTest as reason:
            print(f"skipped  {name}: {reason}")
        except AssertionError as error:
            print(f"FAILED   {name}: {' '.join(str(error).split())[:90]}")


run(TestStudentSpikeSlab())

# %% [markdown]
# A test battery is useful only if it rejects what is wrong. A common mistake, found in published code, is to
# drop the normalising constants of slab and spike from the odds. The prior still runs, and selects too many
# edges:


# %%
class Slip(StudentSpikeSlab):
    def edge_log_odds(self, weights):
        slab, spike = (-2 * torch.log1p((weights / part.scale) ** 2 / 3) for part in self.components())
        return torch.logit(self.eta) + slab - spike


class TestSlip(TestStudentSpikeSlab):
    def make(self):
        return Slip()


run(TestSlip())

# %% [markdown]
# ## Use it
#
# Use the prior like any other. The table is simulated, so we know its edges: twelve features of two factors;
# four features have one parent each, the others one or two.

# %%
data = ps.datasets.anchored(n=400, n_features=12, n_factors=2, kinds=("identity",), max_parents=2, seed=0)
fits = {}
for prior in (StudentSpikeSlab(), ps.priors.SpikeSlabLasso()):
    model = ps.models.SparseDecoder(n_features=12, n_factors=2, prior=prior, decoder="linear")
    fit = ps.fit(model, data.frame, restarts=2, seed=0, steps=800, progress=False)
    found = ps.metrics.support_scores(data.support, fit.edge_score[fit.best] > 0.5)
    print(f"{type(prior).__name__}: precision {found.precision:.2f}, recall {found.recall:.2f}")
    fits[type(prior).__name__] = fit

# %% [markdown]
# Both find the same graph here, and both give exact zeros, although in different ways. The lasso has a
# closed-form proximal map, returned from `prox`, which sets weights to zero during training. The Student-t
# has none: its weights become small, and the fit deletes from time to time the edges that explain less than
# the density charges for them.

# %%
for name, fit in fits.items():
    weights = fit.weights[fit.best]
    print(f"{name}: {(weights == 0).sum()} of {weights.size} weights are exactly zero")
    print(weights.T.round(3))

# %% [markdown]
# Everything downstream works as before: tables, pictures, the report. The probabilities come from Markov
# chain Monte Carlo over everything the fit estimates, under *this* prior: the chains propose from two
# densities that they know, and a Metropolis step corrects for the difference to yours.

# %%
columns = ["feature", "factor", "probability", "effect", "selected"]
table = ps.summary(fits["StudentSpikeSlab"].edge_posterior(), fdr=0.1)[columns]
table.sort_values("probability").head(10)

# %% [markdown]
# Are they calibrated? `ps.calibrate.experiment(model, n_rows=...)` draws tables from your prior and fits
# them; pass the result to `ps.calibrate.sbc` and `ps.calibrate.reliability` (see [Can I trust this
# edge?](trust_an_edge.md)).
#
# ## Priors that are not spike and slab
#
# Derive these from `Prior`, which needs only `distribution`: the density of one weight. A hyper-parameter may
# be an `nn.Parameter`, made in `allocate`, which follows the gradient of the density plus `log_hyper`. Or it
# may be a buffer that `update` sets, if you know its best value. Every shape starts with the R restarts.


# %%
class Cauchy(Prior):
    def allocate(self):
        self.log_scale = torch.nn.Parameter(torch.full((self.n_restarts, 1, 1), -1.0))

    def distribution(self):
        return dist.Cauchy(torch.zeros_like(self.log_scale), self.log_scale.exp())

    def log_hyper(self):
        return dist.Normal(-1.0, 1.0).log_prob(self.log_scale).sum((1, 2))


model = ps.models.SparseDecoder(n_features=12, n_factors=2, prior=Cauchy(), decoder="linear")
fit = ps.fit(model, data.frame, restarts=2, seed=0, steps=800, progress=False)
print("scale:", fit.model.prior.log_scale.exp().detach().flatten())

# %% [markdown]
# Such a prior shrinks but does not select: there are loadings (`fit.weights`) and effects (`fit.effects`) but
# no edges, unless `edge_log_odds` says how probable an edge is given its weight, or `prox` makes zeros.
# Either is a *score*, and every table says so.
