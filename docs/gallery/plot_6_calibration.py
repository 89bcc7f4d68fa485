"""
Calibration
===========

Are probabilities what they say? Here they are made up, so that one set is right and the other too sure.
"""

import numpy as np

import pyro_sparse as ps

rng = np.random.default_rng(0)
p = rng.random((200, 8, 3))  # probabilities of edges in 200 data sets
truth = rng.random(p.shape) < p
groups = np.arange(len(p))

# %%
# The share of edges that exist against the probability that they were given. Bands are those of a
# calibrated forecast; the strip below counts edges.

ps.plots.plot_reliability(ps.calibrate.reliability(p, truth, group=groups))

# %%
# The same edges with probabilities that are too close to 0 and 1.

too_sure = p**2 / (p**2 + (1 - p) ** 2)
ps.plots.plot_reliability(ps.calibrate.reliability(too_sure, truth, group=groups))


# %%
# Simulation-based calibration: ranks of the truth among its posterior draws, for several statistics of the
# graph.
def simulate(rng):
    edge = rng.random((6, 2)) < 0.3
    return edge, edge + rng.normal(size=edge.shape)


def infer(data, rng):
    probability = 1 / (1 + 0.7 / 0.3 * np.exp(0.5 - data))
    return rng.random((63, *data.shape)) < probability


ps.plots.plot_sbc(ps.calibrate.sbc(simulate, infer, seed=1, progress=False))
