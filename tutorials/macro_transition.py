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
# # What drives the economy? A graph over time, and what it does not show
#
# The table has fifty years of US quarters: output, spending, income, money, prices, unemployment. Behind them
# there may be a few latent forces that drive each other from one quarter to the next, and the short interest
# rate may drive some of them. `LatentTransition` estimates that graph: which past latent, and which *action*,
# drives which latent.
#
# This page goes from a DataFrame to the graph, with a probability for every edge, and then asks how much of
# it you can believe. With 200 quarters the answer is: little. That is the lesson, because the same few lines
# of output will tell you so on your own data.
#
# The table comes with statsmodels (`pip install statsmodels`); nothing is downloaded.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import statsmodels.api as sm
import torch

import pyro_sparse as ps

torch.set_num_threads(1)  # small models do not gain from more

raw = sm.datasets.macrodata.load_pandas().data
raw[["year", "quarter", "realgdp", "realinv", "cpi", "m1", "unemp", "tbilrate"]].head(3)

# %% [markdown]
# ## One row per quarter, one column of time, one of actions
#
# A transition model describes a system whose dynamics do not change. So we turn levels that grow for fifty
# years into growth rates (per cent a year), prices into changes of inflation, and unemployment into its own
# change.
#
# The action is the change of the three-month Treasury bill rate. *Which* change matters: the action in a row
# is what was done on the way **to** that row. The bank reacts within the quarter, so we use the change of the
# previous quarter, which was over when this one began.

# %%
growth = 400 * np.log(raw[["realgdp", "realcons", "realinv", "realgovt", "realdpi", "m1", "cpi"]]).diff()
table = growth.drop(columns="cpi").assign(inflation=growth["cpi"].diff(), unemployment=raw["unemp"].diff())
features = list(table.columns)
table["rate"] = raw["tbilrate"].diff().shift(1)
table["quarter"] = pd.PeriodIndex.from_fields(
    year=raw["year"].astype(int), quarter=raw["quarter"].astype(int), freq="Q"
)
table = table.dropna()
print(f"{len(table)} quarters, {table['quarter'].min()} to {table['quarter'].max()}")
table.head(3).round(2)

# %% [markdown]
# ## How many latents? Use held-out quarters
#
# `time` and `actions` name columns; all others are features. The networks are small, since 200 rows cannot
# support large ones. A single long series is cut into twenty pieces of about two and a half years, and
# `holdout=0.25` holds out five of them. We choose the number of latents with the highest ELBO on those five,
# whatever its graph looks like: with enough tries, any picture can be made to look nice.

# %%
settings = dict(
    time="quarter", actions=["rate"], seed=0, holdout=0.25,
    steps=400, warm_up=50, edge_steps=200, progress=False,
)  # fmt: skip


def transition(n_latents):
    return ps.models.LatentTransition(
        n_features=len(features), n_latents=n_latents, n_actions=1, hidden=16, units=8, gated_units=8
    )


fits = {n: ps.fit(transition(n), table, restarts=2, **settings) for n in (1, 2, 3)}
choice = pd.DataFrame({n: fit.heldout_elbo for n, fit in fits.items()}).T
choice.columns = [f"restart {r}" for r in choice]
choice.rename_axis("latents").round(1)

# %% [markdown]
# The figures are nats per piece. Look at the difference between the two restarts of one row before reading
# anything into the difference between rows: five pieces are few. (They also decided when to stop: a fit ends
# with its best state on the held-out pieces. `history` calls the steps that were reversed "undone".)

# %%
n_latents = int(choice.max(axis=1).idxmax())
print(f"highest on held-out quarters: {n_latents} latent(s)")

# %% [markdown]
# ## First question: do two starts agree?
#
# Before looking at any edge: did another start end with the same latents? `similarity` is the mean absolute
# correlation of its latents with those of the best restart; `recovered` forgives mixtures that the graph
# allows; `edges_differing` counts edges. `gap` is the log ratio of the weakest edge to the strongest zero:
# below 0.7, a factor of two, edges and zeros cannot be told apart. The fit's warnings say the same in words.

# %%
for n, one in fits.items():
    for warning in one.warnings:
        print(f"{n} latent(s): {warning}")
pd.concat({n: one.agreement for n, one in fits.items()}, names=["latents"]).round(2)

# %% [markdown]
# If restarts disagree, look at `elbo`. If one of them explains the quarters much less well, it got stuck, and
# more starts are the remedy. If they explain them equally well, the *data* leave a choice, and more starts
# will not help. So we use four starts instead of two for the chosen number of latents:

# %%
model = transition(n_latents)
fit = ps.fit(model, table, restarts=4, **settings)
for warning in fit.warnings:
    print("warning:", warning)
fit.agreement.round(2)

# %% [markdown]
# ## The graph, with probabilities
#
# The table has one row per possible edge. `probability` is the probability that the input helps to explain
# the latent, *given this restart's latents*. `gap` is how far the restarts differ about it; above .25 the
# edge is `unresolved`.

# %%
columns = ["graph", "probability", "strength", "q_value", "gap", "unresolved", "selected"]
idata = fit.edge_posterior()
ps.summary(idata, fdr=0.1)[columns].round(2)

# %%
ps.plots.plot_transition(idata)
plt.show()

# %% [markdown]
# The number beside an edge is that of the best restart. An edge whose `q_value` is near the threshold may be
# selected or not depending on the number of starts alone. `rate` is such an edge here: when we tried six
# starts instead of four, two of them differed about it by .7. Report it as open.
#
# ## The tempting picture
#
# Three latents make a nicer picture. But the held-out quarters do not support it, and two starts do not agree
# on it; dashed lines show where. Without the second restart every line would be solid.

# %%
tempting = fits[3].edge_posterior()
ps.plots.plot_transition(tempting)
plt.show()

# %% [markdown]
# ## The certificate
#
# A graph may be right and still leave latents mixed with each other. `ps.identify` applies the theory to
# every draw of the graph, and lists what the theory assumes. Start with the cautions, which say whether the
# graph can be trusted, and the assumptions, which say whether the theory applies. Only then do the verdicts
# count. (A single latent has no other to be mixed with, so its verdict says nothing.)

# %%
print(ps.identify(fit, idata=idata))

# %% [markdown]
# The same for the tempting picture:

# %%
print(ps.identify(fits[3], idata=tempting))

# %% [markdown]
# ## What are the latents?
#
# They are coordinates. Correlations with the series say what they move with; they do not give them names.

# %%
z = pd.DataFrame(fit.transform()[0], columns=fit.latent_names, index=table.index)
table[features].apply(z.corrwith).T.round(2)

# %% [markdown]
# ## What cannot be claimed
#
# * **200 quarters are few.** The synthetic sets on which this method finds every edge are far larger and have
#   hardly any noise. Here two starts may find different latents that explain the quarters equally well. Then
#   the data leave a choice, and no probability that takes one of them as given removes it.
# * **The economy is close to linear at this scale, and linear dynamics are the bad case.** The theorem needs
#   inputs whose influence *varies* ("sufficient influence"). A constant derivative is one matrix, and one
#   matrix can be made sparse in many axes. The curvature that the network shows may be its own.
# * **The action was not randomised.** The central bank raises the rate because it sees what the latents do.
#   An edge from `rate` says that the rate of one quarter helps to predict the next, given the latents: this
#   may well be the bank's foresight. It does not say what would happen if somebody set the rate at random.
# * **Something unseen drives several latents at once**: oil prices, wars, taxes. The model has no such
#   variables, and puts edges in their place. Nor are the dynamics the same in 1965 and in 2005.
# * **Latents are not named variables.** "latent 1" is a coordinate up to sign and a curve, whatever it
#   correlates with.
#
# What can be claimed is less, and still useful. The figures on held-out quarters say how many latents the
# data support. The agreement of two starts says whether the graph can be trusted. The certificate says which
# experiment or which series would help. If you have randomised actions, thousands of steps and little noise,
# the same lines of code give a graph worth reading.
