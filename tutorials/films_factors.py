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
# # Films and their factors
#
# Who liked which film? That is a table of yes and no: a row for each viewer, a column for each film.
# Tastes are behind it that nobody asked for. Which are they, which films depend on which of them, how
# sure can we be, and what should we recommend to somebody of whom we know a few films?
#
# The films are those of MovieLens-100k (GroupLens, 1998). Its licence does not let anybody hand it on,
# so nothing here fetches it: download `ml-100k.zip` from GroupLens and set `MOVIELENS` to the archive
# or its folder. Without a copy, the page runs on a made-up table, of which the tastes are known: films
# named *crime*, *romance* and *space*, and a few that are two of these at once. Sentences that name a
# real film are about MovieLens.

# %%
import os
import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

import pyro_sparse as ps

warnings.simplefilter("ignore", RuntimeWarning)  # findings are printed below


def made_up(viewers=700, per_taste=7):
    """Yes/no of made-up films: each depends on one taste, the last six on two."""
    rng = np.random.default_rng(0)
    names = ["crime", "romance", "space"]
    films = {f"{name} {i}": [name] for name in names for i in range(1, per_taste + 1)}
    films |= {
        f"{a} and {b} {i}": [a, b] for a, b in zip(names, names[1:] + names[:1], strict=True) for i in (1, 2)
    }
    weight = 1.6 * np.array([[name in tastes for name in names] for tastes in films.values()])
    liking = rng.normal(size=(viewers, 3)) @ weight.T - 1.2 + rng.logistic(size=(viewers, len(films)))
    return pd.DataFrame((liking > 0).astype(float), columns=list(films))


copy = os.environ.get("MOVIELENS")
if copy:  # ratings of 4 and 5 are a like; viewers with 20 likes; the 60 films with most
    loaded = ps.datasets.load_movielens(copy, n_movies=60)
    likes = pd.DataFrame(loaded.x.toarray(), columns=loaded.features.index)
else:
    likes = made_up()
rng = np.random.default_rng(0)
aside = rng.permutation(len(likes)) < len(likes) // 5  # viewers to recommend to, later
X, new = likes[~aside], likes[aside]
print("MovieLens-100k" if copy else "a made-up table", f"{X.shape}, {X.to_numpy().mean():.0%} liked")
X.mean().sort_values(ascending=False).round(2).head(5)

# %% [markdown]
# ## Fit
#
# Yes and no have the Bernoulli likelihood: the logit of a like is a linear function of the tastes.
# Sixty films are a choice for this page, and so are four factors. All 300 films of the benchmark and 15
# factors take two to three minutes instead of one ([what these factors are](../films_and_cells.md)).
#
# A table that nobody simulated has no loadings of exactly zero: everybody's taste moves every film a
# little. So we ask for edges that are more than that: `edge="practical"` is a loading that small
# cross-loadings do not explain ([what an edge is](../concepts.md#what-an-edge-is)). Where as many edges
# exist as here, small loadings are hardly ever called *absent*; `p_salient_0.3` says that they are small.

# %%
model = ps.models.SparseDecoder(n_factors=4, decoder="linear", likelihood="bernoulli")
fit = ps.fit(model, X, seed=0, progress=False)
idata = fit.edge_posterior(edge="practical", progress=False)
print(idata.attrs["verdict"])

# %% [markdown]
# ## What is present, what is open

# %%
edges = ps.summary(idata)
edges.groupby(["factor", "verdict"]).size().unstack(fill_value=0)

# %% [markdown]
# An edge is *present* if its probability is at least .95 **and** no finding speaks against it. *Open*
# is everything between .05 and .95, and everything that a doubt touches, whatever its probability. How
# many of the open edges are open for which of these reasons?

# %%
undecided = edges["probability"].between(0.05, 0.95)
reason = np.select([edges["verdict"] != "open", undecided], ["decided", "probability in between"], "in doubt")
pd.crosstab(edges["factor"], reason)

# %% [markdown]
# Here is the most probable open edge, with the findings that touch it:

# %%
open_edges = edges[edges["verdict"] == "open"].sort_values("probability", ascending=False)
first = open_edges.iloc[0]
print(f"{first.name}: probability {first.probability:.2f}, gap between chains {first.gap:.2f}\n")
for finding in ps.findings.findings_of(fit, idata):
    if finding.is_doubt and finding.touches(first.feature, first.factor):
        print("*", finding)

# %% [markdown]
# In the made-up table it is open for the plain reason, a probability in between, and nothing speaks
# against its factor. On MovieLens the probability is 1 in every chain, and it is open all the same: the
# factor is in doubt, not the edge. Another restart explains the table as well with other factors in its
# place, so this is not the only way to cut the same tastes into pieces. *Given* this factor the film
# depends on it. Whether it is the factor to have is what the data do not say.
#
# ## Read the factors
#
# For a person's eyes the largest loadings matter, and whether they are surely large. `weight` is the
# standardised loading (the mean over the chains kept), with an interval of 90 %; `p_salient_0.3` is the
# probability that the loading is at least .3 in size.

# %%
size = edges["weight"].abs()
top = edges.loc[size[size > 0].sort_values(ascending=False).index].groupby("factor").head(6)
top = top.sort_values("factor", kind="stable").set_index(["factor", "feature"])
top[["probability", "weight", "hdi90_lb", "hdi90_ub", "p_salient_0.3", "verdict"]].round(2)

# %%
ps.plots.plot_edges(idata, max_features=30)
plt.show()

# %% [markdown]
# Frames mark edges that are selected, question marks those on which chains disagree.
#
# On MovieLens the factors can be named: films to be moved by (*E.T.*, *Schindler's List*, *It's a
# Wonderful Life*); Terminator and Alien, with costume drama on the other side; what everybody went to
# see in 1996 (*The Rock*, *Independence Day*); and dark ones (*Fargo*, *Leaving Las Vegas*). A negative
# loading says who does **not** like a film: who likes Terminator tends not to like *Sense and
# Sensibility*, the rest being equal. The names are ours; the table has no genres in it.
#
# Names are no evidence. Whoever reads four lists of films finds four stories, and two of these four are in
# doubt. So let us ask for less.
#
# ## Offer fewer factors

# %%
small = ps.fit(
    ps.models.SparseDecoder(n_factors=2, decoder="linear", likelihood="bernoulli"), X, seed=0, progress=False
)
small_idata = small.edge_posterior(edge="practical", progress=False)
print(small_idata.attrs["verdict"])
ps.summary(small_idata).groupby(["factor", "verdict"]).size().unstack(fill_value=0)

# %%
small_edges = ps.summary(small_idata)
small_top = small_edges.loc[small_edges["weight"].abs().sort_values(ascending=False).index]
small_top = small_top.groupby("factor").head(5).sort_values("factor", kind="stable")
small_top.set_index(["factor", "feature"])[["probability", "weight", "p_salient_0.3", "verdict"]].round(2)

# %%
ps.plots.plot_edges(small_idata, max_features=30)
plt.show()

# %% [markdown]
# On MovieLens nearly half of the edges are present now, where it was one in six, and no factor is in
# doubt. The second factor is what everybody went to see in 1996 and 1997. The first one has nearly all
# films of before: it says how many of them somebody has seen as much as how they were liked, since this
# table writes 0 for both *not liked* and *not seen*. Which film goes with which of the two can be relied
# on; the finer cuts above only in part.
#
# That is no trick to be rid of doubts: a probability near 1 means *given two factors*, and what two
# factors leave out has to be looked for elsewhere. The viewers put aside show it. `score` is the bound
# of their log density, in nats a viewer:

# %%
scores = {"four factors": fit.score(new), "two factors": small.score(new)}
pd.Series(scores, name="nats a viewer, put aside").round(2).to_frame()

# %% [markdown]
# Four factors describe new viewers better, in either table. In the made-up one, crime has lost its
# factor to the other two tastes, and no verdict says so. On MovieLens there is more to taste than two
# factors, too; only, this table does not say how to cut it.
#
# ## Recommend
#
# For a ranking no edge has to be decided: predictions do not depend on how the tastes are cut into
# factors. Of each viewer put aside we give half of the likes and ask for the others. The films that are
# not given are 0 and not missing: 0 is what this table writes for *not liked or not seen*, and it is
# what the fit has learned from. We also try NaN, to see.

# %%
likes_aside = new.to_numpy()
given = np.zeros_like(likes_aside)
for row, liked in zip(given, likes_aside, strict=True):
    films = np.flatnonzero(liked)
    row[rng.choice(films, len(films) // 2, replace=False)] = 1
rest = likes_aside - given
guesses = {
    "four factors, the others 0": fit.predict(pd.DataFrame(given, columns=X.columns)),
    "two factors, the others 0": small.predict(pd.DataFrame(given, columns=X.columns)),
    "four factors, the others NaN": fit.predict(pd.DataFrame(np.where(given, 1, np.nan), columns=X.columns)),
    "how many like it": np.tile(X.mean().to_numpy(), (len(new), 1)),
}
predictions = ps.metrics.predictions
recall = {name: predictions.recall_at_k(p, rest, 5, seen=given) for name, p in guesses.items()}
pd.Series(recall, name="recall in the first five").round(3).to_frame()

# %% [markdown]
# Missing would say: we do not know whether this viewer likes the others. Then all that is known is
# good, the fit concludes that the viewer likes everything, and the ranking is worse.
#
# One viewer from the middle of the crowd:

# %%
viewer = int(rest.sum(1).argsort(kind="stable")[len(rest) // 2])  # as many likes to be found as is usual
probability = pd.Series(guesses["four factors, the others 0"][viewer], index=X.columns, name="probability")
probability = probability[given[viewer] == 0].nlargest(8).round(2)
print("given:", ", ".join(X.columns[given[viewer] == 1][:8]))
probability.to_frame().assign(liked=(rest[viewer] == 1)[X.columns.get_indexer(probability.index)])

# %% [markdown]
# ## What to take home
#
# * **Read verdicts by factor first.** Where a factor is in doubt, its edges are open however probable
#   they are. That is no weakness of single edges.
# * **Few factors, then more.** Where chains no longer agree, go back, and say how many factors it was
#   and what a new row loses by it.
# * **Large loadings, not edges, have names.** With hundreds of rows small effects are found, too.
#   `ps.salient_edges(idata)` asks for loadings of at least .3 throughout.
# * **Rankings need none of it.** If they are all you want, a linear autoencoder ranks films as well in
#   less than a thousandth of the time ([films](../results.md)). The factors are for reading.
