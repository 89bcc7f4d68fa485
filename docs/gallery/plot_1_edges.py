"""
Edges of a table
================

Nine tests of 301 pupils (Holzinger and Swineford 1939). Which test depends on which factor?
"""

import matplotlib.pyplot as plt

import pyro_sparse as ps

pupils = ps.datasets.holzinger().x
model = ps.models.SparseDecoder(n_factors=3, decoder="linear")
fit = ps.fit(model, pupils, restarts=4, seed=0, progress=False)
idata = fit.edge_posterior(edge="practical", progress=False)

# %%
# All edges as tiles. Colour is the size and the sign of the loading, and a frame marks the edges that are
# selected at a false discovery rate of 10 %.

ps.plots.plot_edges(idata)

# %%
# How many factors: eigenvalues of the correlations beside those of tables of noise.

ps.plots.plot_number_of_factors(fit)

# %%
# The surest edges with the intervals of their weights, their probabilities, and the probability that a
# loading is at least .3 in size.

ps.plots.plot_forest(idata, top=15)

# %%
# The strongest features of each factor, a panel for each.

ps.plots.plot_top_weights(idata)

# %%
# The selected edges as a graph.

ps.plots.plot_graph(idata)

# %%
# Which features depend on exactly which factors: the stacks are expected numbers over all draws of the graph.

ps.plots.plot_sets(idata)

# %%
# Where each pupil is on the first two factors.

ps.plots.plot_scores(fit, pupils, factors=(0, 1))

# %%
# Colours follow matplotlib's own settings, so a dark style works.

with plt.style.context("dark_background"):
    ps.plots.plot_edges(idata)
