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
# # Which questions measure which trait?
#
# A personality inventory has 25 questions. Each was written for one of five traits, five questions per
# trait. The answers do not contain that plan: they are 2,800 rows of numbers from 1 to 6, some of them
# missing. Can we recover the plan from the answers, and which questions measure something besides the trait
# they were meant for?
#
# This is the simplest use of a sparse factor model: features are questions, factors are traits, and an
# *edge* says that a question depends on a trait.
#
# `load_bfi()` fetches the table (with a checksum) from a public collection, or reads a local copy: set
# `BFI_CSV` to its path. Without a copy, this page runs on the breast-cancer measurements that come with
# scikit-learn, ten quantities in three versions each, and the question becomes: *which measurements go
# together?*

# %%
import os

import matplotlib.pyplot as plt
import pandas as pd
import torch

import pyro_sparse as ps

torch.set_num_threads(1)  # small models do not gain from more

copy = os.environ.get("BFI_CSV")
table = ps.datasets.load_bfi(copy) if copy else ps.datasets.load_embedded("breast_cancer")
X = table.x
plan = table.features.iloc[:, 0]  # what each column was written for; the model never sees it
print(f"{table.name}: {X.shape[0]} rows, {X.shape[1]} columns, {int(X.isna().sum().sum())} cells missing")
X.iloc[:5, :8]

# %% [markdown]
# ## Fit
#
# Missing answers stay missing: they are left out of the likelihood, and no row is dropped. Five is an upper
# bound on the number of factors; surplus ones would end without edges. All restarts are trained together,
# each from its own number of factors (five, four, ...), and then matched in order and sign.
#
# Two settings describe this kind of table. With so many answers even a loading of a tenth is significant, and
# the question is which loadings *matter*. `lambda0=10` gives the prior's spike a width, so that small weights
# may remain without being called edges (the lasso of the early steps is tied to it, hence `lasso_weight`).
# And an answer from 1 to 6 is nearly linear in the trait: a larger `weight_decay` keeps the decoder's
# functions close to linear.

# %%
model = ps.models.SparseDecoder(
    n_features=X.shape[1], n_factors=5, prior=ps.priors.SpikeSlabLasso(lambda0=10.0)
)
fit = ps.fit(model, X, restarts=3, seed=0, weight_decay=5.0, lasso_weight=5.0, progress=False)
for warning in fit.warnings:
    print("warning:", warning)
elbo = pd.DataFrame({"ELBO (nats a row)": fit.elbo, "held out": fit.heldout_elbo}, dtype=float)
elbo.rename_axis("restart").round(2)

# %% [markdown]
# ## Which edges are there?
#
# The table has one row per edge that is kept at a false discovery rate of .1. Edges in doubt, those that the
# warnings above name and all of their factors, are not among them, whatever their score
# (`include_doubted=True` shows them). `effect` is the share of the
# question's variance that is due to the trait. `gap` is the largest difference between restarts that have the
# same number of factors, or explain the answers as well. Here the others began with four and three factors
# and explain the answers less well, so there is nothing to compare: NaN. (With
# `n_factors_init=[5, 5, 5]` all restarts begin with five.) The number in `score` ranks edges; it is **not** a
# calibrated probability, so the false discovery rate is a threshold on a ranking, not a guarantee.
# `fit.edge_posterior()` gives probabilities, by Markov chain Monte Carlo: a few minutes for a curved decoder
# such as this one, seconds for a linear one (`decoder="linear"`, `edge="practical"`).

# %%
idata = fit.edge_posterior("score")
edges = ps.summary(idata, fdr=0.1, selected_only=True)
print(f"{len(edges)} edges, {len(edges) / X.shape[1]:.1f} per column")
edges[["score", "weight", "effect", "gap"]].round(2).head(12)

# %%
ps.plots.plot_edges(idata)
plt.show()

# %% [markdown]
# ## Does it agree with the plan?
#
# We assign each column to the factor with the largest effect on it, and name a factor after the trait that
# most of its columns were written for. Then we look at which columns disagree.

# %%
effects = pd.DataFrame(fit.effects[fit.best], index=fit.feature_names, columns=fit.factor_names)
strongest = effects.idxmax(axis=1)
counts = pd.crosstab(strongest, plan.to_numpy(), rownames=["factor"], colnames=["written for"])
counts

# %%
name = counts.idxmax(axis=1)
agrees = strongest.map(name) == plan.to_numpy()
print(f"{int(agrees.sum())} of {len(agrees)} columns share their factor's name")

# %% [markdown]
# ## Questions that measure more than one thing
#
# A sparse model can show an edge to a second trait, which a plan cannot. Such a question is not a pure
# measure of its scale.

# %%
second = edges[edges["factor"] != edges["feature"].map(strongest)].copy()
second["beside"] = second["feature"].map(strongest).map(name)
second["also"] = second["factor"].map(name)
second.sort_values("effect", ascending=False)[["feature", "beside", "also", "weight", "effect"]].round(
    2
).head(10)

# %% [markdown]
# ## Filling in missing answers
#
# `fit.predict` gives the factors' prediction of every cell, answered or not. `fit.impute` fills in the
# missing ones and adds what the row's other residuals say (two questions with similar wording share something
# that is not a trait). To see what that is worth, we hide answers and compare with the column's mean.

# %%
rng = torch.Generator().manual_seed(0)
hide = (torch.rand(X.shape, generator=rng) < 0.1).numpy() & X.notna().to_numpy()
shown = X.mask(hide)
scale = X.std().to_numpy()
guesses = {
    "column mean": X.mean().to_numpy(),
    "factors": fit.predict(shown),
    "factors and residuals": fit.impute(shown).to_numpy(),
}
squares = {name: (((guess - X.to_numpy()) / scale) ** 2)[hide].mean() for name, guess in guesses.items()}
pd.Series(squares, name="squared error of hidden cells").round(3)

# %% [markdown]
# These rows were part of the fit, so this flatters the model a little; `python -m benchmarks bfi` hides
# the cells before fitting. Which questions share something besides the traits?

# %%
excess = pd.DataFrame(fit.excess_cov, X.columns, X.columns).stack()
excess.index.names = ["question", "and"]
excess = excess[excess.index.get_level_values(0) < excess.index.get_level_values(1)]
excess.sort_values(key=abs, ascending=False).head(5).round(2)

# %% [markdown]
# ## Save the report
#
# One file contains the pictures, the tables, the settings and the warnings.

# %%
ps.report(fit, "traits.html", X=X).name
