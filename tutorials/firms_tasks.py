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
# # Many regressions, few causes: what drives the investment of eleven firms?
#
# A *task* is one regression. Here a task is a firm, and its target is what the firm invested in each of
# twenty years. Tasks may share latents, and each may use only some of them. Which task uses which latent is a
# graph. It comes with probabilities, and with a certificate that says which latents these tasks can tell
# apart.
#
# The data are Grunfeld's (1935 to 1954), which come with statsmodels.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from statsmodels.datasets import grunfeld

import pyro_sparse as ps

firms = grunfeld.load_pandas().data
firms[["invest", "value", "capital"]] = np.log(firms[["invest", "value", "capital"]])
firms.head(3)

# %% [markdown]
# ## Fit
#
# The table has one row per firm and year. `value` is the firm's market value, `capital` its stock of plant;
# both are logarithms. The model learns two latents, linear in the two inputs, in which the firms' weights are
# sparsest.

# %%
model = ps.models.MultiTaskRegression(n_features=2, n_latents=2)
columns = ["firm", "invest", "value", "capital"]
fit = ps.fit(model, firms[columns], "invest", task="firm", restarts=3, steps=400, seed=0, progress=False)
fit.agreement.round(2)

# %% [markdown]
# The restarts found the same latents (`least` is the correlation of the worst match). What are they?

# %%
z = fit.transform(firms[["value", "capital"]])
pd.DataFrame(
    np.corrcoef(z, firms[["value", "capital"]], rowvar=False)[:2, 2:], fit.latent_names, ["value", "capital"]
).round(2)

# %% [markdown]
# ## Which firm uses which latent
#
# The fit's own weights are a *mode*: the single most plausible set, with exact zeros. They look decisive.

# %%
pd.DataFrame(fit.weights[fit.best], fit.task_names, fit.latent_names).round(2)

# %% [markdown]
# The posterior is not decisive: twenty years and two correlated latents leave most edges open. A zero at the
# mode is one of several good explanations, and the probabilities count the others too. If a firm's own years
# say little, its probability comes from the other firms: the share of firms that use a latent is learned.

# %%
idata = fit.edge_posterior(num_draws=500)
p = ps.edge_prob(idata)
p.round(2)

# %%
fig, axes = plt.subplots(1, 2, figsize=(9, 4.2), sharey=True)
mode = (fit.weights[fit.best] != 0).astype(float)
for ax, values, title in ((axes[0], mode, "at the mode"), (axes[1], p.to_numpy(), "probability of an edge")):
    picture = ax.imshow(values, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    ax.set_title(title)
    ax.set_xticks(range(2), fit.latent_names)
    ax.set_yticks(range(len(p)), fit.task_names)
fig.colorbar(picture, ax=axes, label="edge")
plt.show()

# %% [markdown]
# ## What these firms identify
#
# Differences between tasks identify latents: for every pair of latents, some task must use one and not the
# other. The certificate checks this in every posterior draw. First it checks whether the tasks' weights
# favour any axes at all, using tasks that did not choose the axes.

# %%
certificate = ps.identify(fit, idata=idata)
print(certificate)

# %% [markdown]
# ## What cannot be claimed
#
# * That a firm's investment follows *this* latent and not that one, if the table says something between .1
#   and .9.
# * That the latents are causes: a firm that invests also grows its capital, and years are not independent
#   samples.
# * If the certificate does not say *identified*: that these two axes are the right ones. Other axes of the
#   same plane explain the firms as well. More firms, or firms that differ more, would help; more restarts
#   would not.
