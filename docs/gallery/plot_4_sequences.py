"""
Sequences
=========

Which latent drives which, one step later? The sequences are simulated: six features, three latents, six
edges.
"""

import pyro_sparse as ps

data = ps.datasets.transition_data("TimeNonDiag", n=2000, d_z=3, d_x=6, T=5, seed=0)
x, _, _ = data.part("train")
model = ps.models.LatentTransition(n_features=6, n_latents=3, hidden=32)
fit = ps.fit(model, x, restarts=2, steps=400, seed=0, progress=False)
idata = fit.edge_posterior()

# %%
# Latents at the last step on the left, latents at this step on the right. With so few sequences the fit
# doubts its latents, so all edges are open and none is drawn by default.

ps.plots.plot_transition(idata, include_doubted=True)
