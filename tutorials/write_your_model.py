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
# # Write your model
#
# The ready models answer the usual questions. If yours is another one, write it: a Pyro program that says how
# the table came about, with a sparse graph in it. `ps.fit` looks for its modes, `edge_posterior` runs Markov
# chains over everything in it, and the edges get probabilities as those of a ready model do.
#
# A program is a function of `d`, the data as it sees them. It is written for **one** chain; restarts and
# chains are added for you. Beside Pyro's own statements there are four:
#
# | statement | declares |
# |---|---|
# | `ps.edges` | weights from each feature to the factors, each from a slab (edge) or from a spike (none) |
# | `ps.factors` | latent factors of each row, whose axes may rotate |
# | `ps.gates` | 0/1 edges, for a mechanism to multiply with |
# | `ps.sample` | `pyro.sample`, where the last axis of a site is that of the factors |

# %%
import numpy as np
import pyro
import pyro.distributions as dist
import torch

import pyro_sparse as ps

torch.set_num_threads(1)  # small models do not gain from more


# %% [markdown]
# ## Five lines: sparse factor analysis
#
# $$x_{nj} \sim N(w_j^\top z_n,\; s_j^2)$$


# %%
def factor_analysis(d):
    with d.features:
        slab, spike = dist.Normal(0.0, 0.8), dist.Normal(0.0, 0.03)
        W = ps.edges("W", log_odds=-1.0, slab=slab, spike=spike, to=d.factors)
        sd = pyro.sample("sd", dist.LogNormal(-0.5, 0.7))
    with d.rows:
        z = ps.factors("z", dist.Normal(torch.zeros(d.n_factors), 1.0))
    with d.rows, d.features:
        pyro.sample("x", dist.Normal(z @ W.mT, sd).mask(d.seen), obs=d.x)


# %% [markdown]
# `d.rows` and `d.features` are plates; `d.x` are the cells, and `d.seen` says which of them are there.
#
# ## Covariates, and rates of edges by group
#
# Suppose that a dose moves the factors, and that features come from two families, one of which has more
# edges. The first is a regression inside the program, the second a rate of each family. `axes="factor"` says
# that the last axis of `B` is that of the factors: if they rotate, the effects rotate with them.


# %%
def dosed(d):
    rate = pyro.sample("rate", dist.Normal(-1.0, 1.5).expand([d.levels("family")]).to_event(1))
    effect = dist.Normal(0.0, 1.0).expand([d.dose.shape[-1], d.n_factors]).to_event(2)
    B = ps.sample("B", effect, axes="factor")
    with d.features:
        slab, spike = dist.Normal(0.0, 0.8), dist.Normal(0.0, 0.03)
        odds = rate[..., d.family].unsqueeze(-1)
        W = ps.edges("W", log_odds=odds, slab=slab, spike=spike, to=d.factors)
        sd = pyro.sample("sd", dist.LogNormal(-0.5, 0.7))
    with d.rows:
        z = ps.factors("z", dist.Normal(d.dose @ B, 1.0))
    with d.rows, d.features:
        pyro.sample("x", dist.Normal(z @ W.mT, sd).mask(d.seen), obs=d.x)


# %% [markdown]
# A table of which we know the answer: 150 rows, 12 features, two factors. The dose moves the first factor up
# and leaves the second alone; features of family "a" have many edges and those of "b" few.

# %%
rng = np.random.default_rng(7)
family = np.array(["a"] * 6 + ["b"] * 6)
edge = rng.random((12, 2)) < np.where(family == "a", 0.7, 0.2)[:, None]
weight = edge * rng.uniform(0.5, 1.0, edge.shape) * rng.choice([-1, 1], edge.shape)
dose = rng.normal(size=(150, 1))
z = dose @ np.array([[1.0, 0.0]]) + rng.normal(size=(150, 2))
x = z @ weight.T + 0.5 * rng.normal(size=(150, 12))

data = ps.Data(x, rows={"dose": dose}, features={"family": family})
model = ps.Program(dosed, n_factors=2)

# %% [markdown]
# `ps.check` looks at the program before anything is fitted: in which plate each site is, how it will be drawn
# and why, which densities it enters, and how long chains will take. A program that cannot be sampled is
# refused here, with the name of the site that is the reason.

# %%
checked = ps.check(model, data)
checked.sites[["plate", "declared", "moves"]]

# %%
fit = ps.fit(model, data, restarts=4, seed=0, progress=False)
idata = fit.edge_posterior(sweeps=500)
print(idata.attrs["verdict"])
ps.summary(idata, selected_only=True)

# %% [markdown]
# Everything else in the program has draws, too. The dose moves one factor and not the other, and family "a"
# has the higher rate:

# %%
posterior = idata["posterior"]
effects = posterior["B"].mean(("chain", "draw")).to_numpy().ravel().round(2)
rates = torch.sigmoid(torch.as_tensor(posterior["rate"].to_numpy())).mean((0, 1)).numpy().round(2)
print("effects of the dose on the factors:", effects)
print("rates of edges, a and b:", rates)

# %%
probability = ps.edge_prob(idata).to_numpy()
order = [1, 0] if abs(effects[1]) > abs(effects[0]) else [0, 1]
brier = float(((probability[:, order] - edge) ** 2).mean())
assert abs(effects[order[0]]) > 0.6 and rates[0] > rates[1] and brier < 0.1, (effects, rates, brier)

# %% [markdown]
# ## A mechanism of your own
#
# Which variable drives which? Here the next value of a variable is a sum of saturating pushes, each behind a
# gate, $x'_j = \sum_k \gamma_{jk}\, a_{jk}\, x_k / (h_j + |x_k|) + \text{noise}$. The variables are seen, so
# there are no factors: rows are pairs of frames, each row knows the frame before it, and the edges lead to
# the variables of that frame.


# %%
def saturating(d):
    rate = pyro.sample("rate", dist.Beta(1.0, 2.0))
    with d.features:
        gate = ps.gates("gate", log_odds=torch.logit(rate), to=d.factors)
        force = pyro.sample("force", dist.Normal(torch.zeros(d.n_factors), 1.5).to_event(1))
        half = pyro.sample("half", dist.LogNormal(0.0, 0.5))
        sd = pyro.sample("sd", dist.LogNormal(-0.5, 0.7))
    before = d.before.unsqueeze(-2)  # row, target, source
    pushed = before / (half.unsqueeze(-1) + before.abs())
    with d.rows, d.features:
        pyro.sample("x", dist.Normal((gate * force * pushed).sum(-1), sd), obs=d.x)


drives = np.array([[1, 1, 0, 0], [0, 1, 0, 0], [0, 1, 1, 0], [0, 0, 0, 1]])
force = drives * np.array([[1.5, -2.0, 0, 0], [0, 1.8, 0, 0], [0, 1.6, 1.2, 0], [0, 0, 0, 2.0]])
frames = np.zeros((300, 4))
for t in range(1, 300):
    frames[t] = (force * frames[t - 1] / (1 + np.abs(frames[t - 1]))).sum(1) + 0.5 * rng.normal(size=4)

names = ["a", "b", "c", "d"]
pairs = ps.Data(frames[1:], rows={"before": frames[:-1]}, feature_names=names)
fit = ps.fit(ps.Program(saturating, n_factors=4), pairs, restarts=2, seed=0, progress=False)
driven = ps.edge_prob(fit.edge_posterior(sweeps=400)).set_axis(names, axis=1)
driven.round(2)

# %% [markdown]
# The six edges that there are have probability 1; one that is not there is open.

# %%
assert ((driven.to_numpy() > 0.95) == (drives == 1)).all()

# %% [markdown]
# ## It stays a Pyro program
#
# `Predictive`, `SVI`, `NUTS`, `poutine.condition` and `pyro.render_model` take a `Program` and its `Data`.
# Draws from the prior say whether the program means what you think:

# %%
from pyro.infer import Predictive

drawn = Predictive(ps.Program(factor_analysis, n_factors=2), num_samples=50)(data)
print({name: tuple(value.shape) for name, value in drawn.items()})

# %% [markdown]
# ## Do its probabilities mean what they say?
#
# Draw tables from the program, run the chains on each, and see whether edges called .8 are there eight times
# in ten. All tables share one pass. Ten small ones show how it is done; ask for a hundred before you believe
# it.

# %%
from pyro_sparse.calibrate import program_experiment

experiment = program_experiment(
    ps.Program(factor_analysis, n_factors=2), ps.Data(x[:60, :8]), n_tables=10, sweeps=400, warm_up=150
)
print(experiment.reliability())
print("90 % intervals cover:", {name: round(share, 2) for name, share in experiment.coverage().items()})
