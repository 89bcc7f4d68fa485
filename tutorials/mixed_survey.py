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
# # A survey with everything in it
#
# Surveys hold numbers, yes or no, and answers on a scale side by side. Under one normal likelihood "yes" is
# predicted to be 1.4, a scale whose answers pile up at one end looks like two, and what a column *is* decides
# where it goes. Here each column has the likelihood that suits it.
#
# The table is part of the American National Election Study of 1996, which comes with statsmodels: 944 voters,
# their age, schooling, income and place, and where they see themselves and two candidates between left (1)
# and right (7).

# %%
import warnings

import numpy as np
import statsmodels.api as sm
import torch

import pyro_sparse as ps

torch.set_num_threads(1)  # small models do not gain from more

X = sm.datasets.anes96.load_pandas().data.drop(columns="popul")  # logpopul has its logarithm
X.describe().loc[["min", "50%", "max"]].T

# %% [markdown]
# ## Which column is what?
#
# `"auto"` looks at types and cells. It takes 0 and 1 for yes or no, and numbers with fractions for
# measurements, but it does not guess what whole numbers from 1 to 7 are:

# %%
try:
    ps.fit(ps.models.SparseDecoder(n_factors=4, likelihood="auto"), X)
except ValueError as error:
    print(error)

# %% [markdown]
# They are levels of a scale. We say so by name and leave the others to `"auto"`; `ps.check_table` tells what
# was chosen, and what else there is to know about the table before a fit.

# %%
scales = ("TVnews", "selfLR", "ClinLR", "DoleLR", "PID", "educ")
likelihood = {scales: "ordinal", "*": "auto"}
for finding in ps.check_table(X, likelihood):
    print("-", finding)

# %% [markdown]
# The second sentence is right: `logpopul` is the logarithm of thousands of people and .1, and a place of
# fewer than a thousand counts as 0. The third is no slip, but a curve: voters who see Dole a little to the
# right of the middle (5) differ most from those who see him on the left, and those who see him far to the
# right (7) are in between. The order is right, and a fifth is little to lose. The fourth is right, too:
# interviews were held place by place, and neighbouring rows share a place. There is no column for it here, so
# we go on, and the sentences stay with the result.
#
# ## Fit, and how sure is it?
#
# Four factors, each pinned to one column that should depend on nothing else, and named: party, the view of
# the candidates, age, schooling. What else depends on them is the question.

# %%
names = ["party", "candidates", "age", "schooling"]
anchors = dict(zip(("PID", "ClinLR", "age", "educ"), names, strict=True))
model = ps.models.SparseDecoder(
    n_factors=4, factor_names=names, anchors=anchors, likelihood=likelihood, decoder="linear"
)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the sentences above
    fit = ps.fit(model, X, n_factors_init=[4] * 8, seed=0, progress=False)
idata = fit.edge_posterior()
edges = ps.summary(idata)
edges.loc[edges["probability"] > 0.3, ["probability", "verdict", "weight", "hdi90_lb", "hdi90_ub"]].round(2)

# %%
print(idata["posterior"].attrs["verdict"])

# %% [markdown]
# Party, vote and where voters place themselves are one factor. The two candidates are another, with opposite
# signs: who sees Clinton far to the left sees Dole far to the right. Age and evenings of television news go
# together, schooling and income do. A loading is the root of a share of variance, of a scale that of its
# hidden variable: compare sizes within a kind, probabilities anywhere.

# %%
ps.plots.plot_edges(idata)

# %% [markdown]
# ## Answers that are missing
#
# Hide a tenth of the answers about the party, and ask for them. Predictions are expected levels; `impute`
# fills the holes.

# %%
rng = np.random.default_rng(0)
hidden = rng.random(len(X)) < 0.1
holes = X.mask(np.outer(hidden, X.columns == "PID"))
expected = fit.predict(holes)[hidden, list(X.columns).index("PID")]
truth = X.loc[hidden, "PID"]
print(f"correlation with the hidden answers: {np.corrcoef(expected, truth)[0, 1]:.2f}")
print(f"mean error in levels: {np.abs(expected - truth).mean():.2f}, of the mean answer "
      f"{np.abs(X.loc[~hidden, 'PID'].mean() - truth).mean():.2f}")  # fmt: skip

# %% [markdown]
# ## The same under one normal likelihood

# %%
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    plain = ps.fit(
        ps.models.SparseDecoder(n_factors=4, factor_names=names, anchors=anchors, decoder="linear"),
        X, n_factors_init=[4] * 8, seed=0, progress=False,
    )  # fmt: skip
print(said[0].message)
vote = list(X.columns).index("vote")
for name, result in (("one normal likelihood", plain), ("a likelihood for each column", fit)):
    chance = result.predict()[:, vote]
    print(f"{name}: P(vote for Dole) between {chance.min():.2f} and {chance.max():.2f}")

# %% [markdown]
# [Columns of several kinds](../columns.md) has the rules: patterns, positions and types, words of ordered
# categories, what changes and what does not.
