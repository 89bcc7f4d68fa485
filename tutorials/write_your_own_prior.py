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
# # Write your own prior in 30 lines
#
# A prior here is a small class. It must say one thing: the density of one weight. If it knows more, how
# probable an edge is, how its hyper-parameters are updated, it can say that too, and every model of the
# package uses it.
#
# Our example: loadings are mostly nothing, and now and then very large. The spike-and-slab lasso pulls
# the large ones towards zero; a **Student-t spike and slab** lets them be:
#
# $$w_{jk} \mid \eta_k \sim \eta_k\, t_3(0, s_1) + (1 - \eta_k)\, t_3(0, s_0), \qquad
# \eta_k \sim \mathrm{Beta}(1, b).$$

# %%
from unittest import SkipTest

import pyro.distributions as dist
import torch
from scipy import stats

import pyro_sparse as ps
from pyro_sparse.priors import Prior, em

torch.set_num_threads(1)  # small models do not gain from more


# %% [markdown]
# ## The prior
#
# * `allocate` is called once, when the sizes are known: R restarts, G features, K factors. What changes
#   during a fit is a *buffer* with the restart in front, so that it is saved, resumed and moved to a GPU
#   with the model.
# * `distribution` is the only method that a prior must have. It returns a Pyro distribution of one
#   weight; the base class turns it into the Pyro program.
# * `edge_log_odds`, `update` and `log_hyper` are the E-step, the M-step and the hyper-prior. The M-step
#   for an inclusion probability is in `priors.em`, which also knows about forbidden edges. A quantity without
#   an M-step may be an `nn.Parameter` instead, made in `allocate`: it follows the gradient.


# %%
class StudentSpikeSlab(Prior):
    def __init__(self, slab_scale=0.5, spike_scale=0.01, b=5.0):
        super().__init__()
        self.slab_scale, self.spike_scale, self.b = slab_scale, spike_scale, b
        self.register_buffer("eta", torch.full((1, 1, 1), 0.5))

    def allocate(self):
        self.eta = self.eta.new_full((self.n_restarts, 1, self.n_factors), 0.5)

    def components(self):
        scale = self.eta.new_tensor([self.slab_scale, self.spike_scale])
        return dist.StudentT(self.eta.new_tensor(3.0), self.eta.new_tensor(0.0), scale)

    def distribution(self):
        share = torch.stack([self.eta, 1 - self.eta], -1)
        return dist.MixtureSameFamily(dist.Categorical(share), self.components().expand(share.shape))

    def edge_log_odds(self, weights):
        slab, spike = self.components().log_prob(weights[..., None]).unbind(-1)
        return torch.logit(self.eta) + slab - spike

    def update(self, weights, prob=None):
        prob = self.edge_log_odds(weights).sigmoid() if prob is None else prob
        self.eta.copy_(em.eta_step(prob, 1.0, self.b, self.allowed))

    def log_hyper(self):
        return (
            dist.Beta(torch.ones_like(self.eta), self.b * torch.ones_like(self.eta))
            .log_prob(self.eta)
            .sum((1, 2))
        )


# %% [markdown]
# ## Is it sound?
#
# `PriorTestCase` checks every piece against another way to the same number: the density is integrated,
# the gradient differenced, draws are compared with the density, the E-step with Bayes' rule, the M-step
# with a numerical maximiser, and the program's shapes, data types and saved state are looked at. Say how
# the prior is made and, because it speaks of edge probabilities, what mixture it means. In your own
# project this class goes into a test file, and `pytest` finds it.


# %%
class TestStudentSpikeSlab(ps.testing.PriorTestCase):
    def make(self):
        return StudentSpikeSlab()

    def components(self, prior):
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
# A battery is worth something only if it fails what is wrong. A common slip, found in published code, is
# to drop the normalising constants of slab and spike from the odds. The prior still runs, and selects
# too many edges:


# %%
class Slip(StudentSpikeSlab):
    def edge_log_odds(self, weights):
        squared = (weights[..., None] / self.components().scale) ** 2
        slab, spike = (-2.0 * torch.log1p(squared / 3)).unbind(-1)
        return torch.logit(self.eta) + slab - spike


class TestSlip(TestStudentSpikeSlab):
    def make(self):
        return Slip()


run(TestSlip())

# %% [markdown]
# ## Use it
#
# The prior goes where any other goes. The table is simulated, so we know its edges: twelve features of
# two factors, four features with one parent each, the others with one or two.

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
# Both see the same graph here, and both leave exact zeros, though they come to them by different ways. The
# lasso has a closed-form proximal map, returned from `prox`, which sets weights to zero in the steps of the
# training. The Student-t has none: its weights become small, and as it has `edge_log_odds`, the fit now and
# then deletes the edges that explain less than their density charges for them. A prior with neither keeps
# small weights, and there are no edges to speak of.

# %%
for name, fit in fits.items():
    weights = fit.weights[fit.best]
    print(f"{name}: {(weights == 0).sum()} of {weights.size} weights are exactly zero")
    print(weights.T.round(3))

# %% [markdown]
# Everything downstream works as before: tables, pictures, the report. An edge probability computed from
# a point estimate of the weights, as here, is a *score*, and every table says so.

# %%
columns = ["feature", "factor", "score", "selected"]
ps.summary(fits["StudentSpikeSlab"].edge_posterior(method="score"), fdr=0.1)[columns].head(10)
