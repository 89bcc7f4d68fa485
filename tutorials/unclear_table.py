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
# # When the table has no clear answer
#
# Some tables do not say which feature depends on which factor, however long one computes. The package says
# so; this page shows how it reads, and what can be done. The table: measurements of the cell nuclei in 569
# biopsies of breast tissue, which come with scikit-learn. Ten quantities (radius, texture, perimeter …) are
# each there three times: as mean, as standard error and as the worst value.

# %%
import warnings

import matplotlib.pyplot as plt
import pandas as pd
from scipy.stats import norm

import pyro_sparse as ps

warnings.simplefilter("ignore", RuntimeWarning)  # findings of the tables are printed below

X = ps.datasets.load_embedded("breast_cancer").x
X.shape

# %% [markdown]
# ## Look before you fit
#
# `ps.check_table` needs no model and takes a second.

# %%
for finding in ps.check_table(X):
    print("*", finding)

# %% [markdown]
# Each of the three would spoil a fit by itself.
#
# * Perimeter and area follow from the radius. Two columns that are nearly copies have a factor of their
#   own: it says that they are copies, and nothing else.
# * Heavy tails: few large cells decide the correlations.
# * Rows that are near one another are alike, and rows are taken to be independent. The table does not say
#   what the order of its rows means, so this stays, and intervals may be too narrow for it.
#
# ## Fit it all the same
#
# Thirty columns, five factors.

# %%
fit = ps.fit(ps.models.SparseDecoder(n_factors=5, decoder="linear"), X, seed=0, progress=False)
idata = fit.edge_posterior(progress=False)
print(idata.attrs["verdict"])

# %% [markdown]
# Read such a verdict from the doubts upwards. *Chain … holds another graph*: the Markov chains do not come
# together, and those that are much worse are left out. *The chains hold … graphs*: those that remain do
# not agree either, and the shares say how they compare. *The chains see factor … in other axes*: what the fit
# calls by that name is another quantity in the chains. An edge that a doubt touches is **open**,
# whatever its probability, and is not selected. So count verdicts by factor before you read single edges:

# %%
edges = ps.summary(idata, fdr=0.1)
edges.groupby(["factor", "verdict"]).size().unstack(fill_value=0)

# %% [markdown]
# The table has more structure than five factors: pairs of columns share what no factor explains.

# %%
fit.residual_pairs().head(8)

# %% [markdown]
# ## Ask a smaller question
#
# Each finding has named its remedy. We leave out perimeter and area, take one of the three versions of each
# quantity, and replace values by normal scores of their ranks, which have no tails. (A fit with and without
# this last step is the check that the step itself did no harm.) Eight columns are left, for two factors.


# %%
def normal_scores(table):
    return pd.DataFrame(norm.ppf((table.rank() - 0.5) / len(table)), table.index, table.columns)


quantities = [
    "radius",
    "texture",
    "smoothness",
    "compactness",
    "concavity",
    "concave points",
    "symmetry",
    "fractal dimension",
]
means = normal_scores(X[[f"mean {quantity}" for quantity in quantities]])
small = ps.fit(ps.models.SparseDecoder(n_factors=2, decoder="linear"), means, seed=0, progress=False)
small_idata = small.edge_posterior(progress=False)
print(small_idata.attrs["verdict"])
for finding in small.findings:
    print("*", finding)

# %%
ps.plots.plot_edges(small_idata)
plt.show()

# %% [markdown]
# Now chains agree, and most edges are decided. One factor is size with what grows with it, the other is how
# irregular the outline is. The picture also shows why nobody should read more into it: half of the
# quantities depend on both, so the axes hang on few zeros, and the findings still say that pairs of columns
# share more than these two factors explain. A probability near 1 means *given two factors and independent
# noise*.
#
# ## Ask it again
#
# The table has a second version of the same eight quantities: the worst value instead of the mean. If the
# graph is a property of tissue, it should come back.

# %%
worst = normal_scores(X[[f"worst {quantity}" for quantity in quantities]])
again = ps.fit(ps.models.SparseDecoder(n_factors=2, decoder="linear"), worst, seed=0, progress=False)
again_idata = again.edge_posterior(progress=False)
print(again_idata.attrs["verdict"])

# %%
of_quantity = {}
for version, posterior in (("mean", small_idata), ("worst", again_idata)):
    of_quantity[version] = ps.edge_prob(posterior).rename(index=lambda name: name.split(" ", 1)[1])
pd.concat(of_quantity, axis=1).round(2)

# %% [markdown]
# Most of it does: both versions have size with texture and concave points on one factor, smoothness and
# symmetry on the other, and compactness, concavity and, less surely, fractal dimension on both. What does
# not come back are edges that one version has at .9 or more and the other at .2 or so: a second edge of the
# concave points, and one from radius to irregularity. They hang on the two assumptions above, which the
# findings speak against. That is the answer to take home: two dimensions of variation, which most
# quantities belong to as one would expect, and a few weak edges that no one should report from either
# version alone. Where a table has no second version, halves of its rows are one (`ps.calibrate.halves`).
#
# ## What can be said
#
# * **The subspace, not the axes.** Rows are predicted as well in any axes of the same subspace;
#   `fit.score`, `fit.impute` and `fit.excess_cov` do not depend on axes.
# * **What is known can be put in.** If two quantities are known to depend on one factor alone, say so
#   (`anchors=`): then the rest is conditional on that, and the verdict says so. [Prior
#   knowledge](../prior_knowledge.md)
# * **More columns of the right kind.** A feature that depends on one factor only is what identifies it;
#   `ps.identify` names the factor that lacks one.

# %%
print(ps.identify(small, idata=small_idata))
