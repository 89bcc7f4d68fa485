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
# # Is my model identified?
#
# A model is *identified* if its latents could not be others: no second set of latents explains the data as
# well with as simple a graph. Theorems say when that is so. `ps.identify` asks such a theorem of the graph
# that was learned, of every posterior draw of it, and checks what can be checked of its assumptions. The
# answer is a certificate.
#
# A certificate is easily read for more than it says. This page reads three of them aloud: of a table, of
# sequences, of tasks. Each time four questions: **what is claimed, under which theorem and assumptions,
# what is not claimed, and what would help?** The fits are small and short, so that the page runs quickly.
# They are there to be read, not to be believed.

# %%
import os

import numpy as np
import pandas as pd
import torch
from statsmodels.datasets import grunfeld

import pyro_sparse as ps
from pyro_sparse import metrics

torch.set_num_threads(1)  # small models do not gain from more

# %% [markdown]
# ## How to read one
#
# From top to bottom:
#
# 1. **Caution.** Reasons to doubt the graph itself. If they are serious, stop here. 2. **Criterion.** Whose
# theorems were asked. 3. **Verdicts**, one for each latent. *Identified*: at least 95 % of the draws say
# so. *Mixed*: at most 5 % do. *Unresolved*: between, or no other restart agrees. *Empty*: it reaches
# nothing. *Alone*: there is no other to be mixed with. P is the share of draws of the graph in which the
# criterion holds. It is **not** the probability that the latent is real. 4. **Assumptions.** *Holds* and
# *FAILS* are measured on the fit. *Cannot be checked* is a promise that you make, not the program.
#
# ## 1. A table
#
# Answers to 25 personality questions, if there is a copy (`BFI_CSV` is its path); else the breast-cancer
# measurements that come with scikit-learn. The decoder is linear here, as in a factor analysis. The edges'
# probabilities come from short Markov chains.

# %%
copy = os.environ.get("BFI_CSV")
table = ps.datasets.load_bfi(copy) if copy else ps.datasets.load_embedded("breast_cancer")
model = ps.models.SparseDecoder(
    table.x.shape[1], 5, decoder="linear", prior=ps.priors.SpikeSlabLasso(lambda0=10.0)
)
fit = ps.fit(model, table.x, restarts=5, caps=[5] * 5, steps=600, screen=5.0, seed=0, progress=False)
idata = fit.edge_posterior("polish", sweeps=500, warm_up=150, num_draws=250)
certificate = ps.identify(fit, idata=idata)
print(certificate)

# %% [markdown]
# **What is claimed.** For a factor that is *identified*: whichever draw of the graph is the true one, no
# other axes have the same zeros. Several criteria were asked, and `by` names the one that asks least beside
# the graph. *Anchors* are features that depend on one factor only. *Zeros* are all missing edges together,
# and they count only beyond those that any turned solution could have. Each criterion has its own
# probability:

# %%
certificate.criteria.round(2)

# %% [markdown]
# **Under which assumptions.** The decoder is straight. That is the hard case: with normal factors a straight
# model fits exactly as well in any rotation, and the caution says so. All that speaks for these axes is that
# they need few edges. So everything hangs on one assumption that no table can show: *small is not zero*. A
# question may depend on a second trait a little. The prior was told to call that no edge (`lambda0=10`).
#
# **What is not claimed.** That the factors are the traits that the questions were written for. That there
# are five of them. That no common cause was left out. Where a factor has a single feature in some draws, it
# cannot be told from that feature's noise; the certificate then says *the noise of* and the feature's name.
# *Unresolved* factors have edges that are neither likely nor unlikely:

# %%
open_edges = ps.summary(idata).query("0.2 < probability < 0.8")
print(f"{len(open_edges)} of {table.x.shape[1] * 5} edges have a probability between .2 and .8")
open_edges[["probability", "weight", "gap"]].head(6).round(2)

# %% [markdown]
# Their weights are middling: more than nothing, less than plain edges. So wide a spike (`lambda0=10`) has its
# part in that. The theory knows edges and zeros only. A table of answers knows much in between, and the
# verdicts are as undecided as we are about what counts.
#
# **What would help.** `would help` speaks of features, for that is what the criterion is about: in a new
# questionnaire, a question that asks for one trait and nothing else. Where it says *more rows*, the edges are
# uncertain and not the structure. For an unresolved factor in a long-known questionnaire you may also *give*
# anchors (`SparseDecoder(anchors=…)`). Then they are your claim, and no longer the data's.
#
# ## 2. Sequences
#
# Three latents, each moved by its own past and by an action of its own. We know that, for the sequences are
# simulated (`transition_data`); the model does not. It sees six nonlinear mixtures of the latents, and the
# actions.

# %%
data = ps.datasets.transition_data("ActionTimeDiag", n=300, d_z=3, d_x=6, T=4, seed=0)
x, z, actions = data.part("train")
model = ps.models.LatentTransition(6, 3, n_actions=3, hidden=16, units=16, gated_units=8)
moves = ps.fit(model, x, actions=actions, restarts=2, steps=300, edge_steps=50, seed=0, progress=False)
edges = moves.edge_posterior(num_draws=200)
certificate = ps.identify(moves, idata=edges)
print(certificate)

# %% [markdown]
# **What is claimed.** The theorem is that of mechanism sparsity. A latent is identified if who drives whom
# tells it from all others: for instance, an action that moves it and not them. The criterion looks at the
# graph only, and asks each draw.
#
# **Under which assumptions.** *Sufficient influence* is measured: the derivatives of the transition must
# vary enough, in as many directions as the graph has edges. A constant derivative is one matrix, and one
# matrix can be made sparse in many axes. Where this FAILS the theorem does not apply, **and the verdicts
# above it are then statements about a graph, not about latents**. Here the line for the past does, and that
# for the actions does not. The others cannot be checked: that different latents never make the same frame,
# that no hidden cause drives several latents, that the noise is Gaussian.
#
# **How to read P here.** The criterion holds in nearly all draws, and still nothing is called identified.
# The caution says why: the other restart ended with other latents. The draws are of *one* restart's graph,
# and they do not know of the other. So the verdicts are held back.
#
# **What is not claimed.** That the graph is right. Its probabilities are *given the latents that were found*.
# Here we can look. How well does each true latent correlate with its best match, and which edges are there?

# %%
found = moves.transform()
matched = metrics.mcc(z.reshape(-1, 3), np.asarray(found).reshape(-1, 3), "spearman")
print("rank correlation with the truth:", matched.correlation.round(2))
ps.summary(edges, fdr=0.1, selected_only=True)[["graph", "probability", "gap"]].round(2)

# %% [markdown]
# The truth has six edges: each latent from its own past, and each from one action. The latents are nearly
# right, and a little mixed. That is enough to make edges that do not exist, some with a probability near 1.
# The certificate was right to hold back.
#
# **What would help.** More and longer sequences, more steps (this fit is far too short: the default is many
# times as long), and above all an action that moves one latent only and that somebody chose at random.
#
# ## 3. Tasks
#
# Eleven firms, twenty years each (Grunfeld's data): one regression for each firm, with latents that they
# share.

# %%
firms = grunfeld.load_pandas().data
firms[["invest", "value", "capital"]] = np.log(firms[["invest", "value", "capital"]])
columns = ["firm", "invest", "value", "capital"]
model = ps.models.MultiTaskRegression(n_features=2, n_latents=2)
tasks = ps.fit(model, firms[columns], "invest", task="firm", restarts=3, steps=300, seed=0, progress=False)
uses = tasks.edge_posterior(num_draws=300)
certificate = ps.identify(tasks, idata=uses)
print(certificate)

# %% [markdown]
# **What is claimed.** A latent is identified if, for every other latent, some task uses it *without* the
# other. That is assumption 3.6 of the theorem, and P is the share of draws in which it holds.
#
# **Under which assumptions.** 3.3 and 3.4 can be measured: the latents vary, and so do the tasks' weights.
# 3.5 can be refuted and not shown. The rest is your promise: a latent means the same in every firm, targets
# are linear in it, and the weights do not happen to line up.
#
# **What is not claimed.** *Unresolved* is not *wrong*. Some likely graphs would identify the latents and
# some would not, and twenty years a firm do not decide between them. The caution is a second reason: even
# given a graph, these tasks' weights do not prefer the two axes to others in their plane. A verdict also
# falls back to *unresolved* where another restart did not find the latent, or where the tasks' weights do
# not tell it from others.
#
# **What would help.** Tasks that use the one latent and not the other: more firms, of other kinds. More years
# would make edges surer. More restarts would not.
#
# ## Side by side


# %%
def verdicts(name, result, idata):
    found = ps.identify(result, idata=idata)
    state = found.assumptions["holds"].map({True: "hold", False: "fail"}).fillna("cannot be checked")
    kinds, states = ("identified", "mixed", "unresolved"), ("hold", "fail", "cannot be checked")
    return {
        "data": name,
        **{kind: int((found.table["verdict"] == kind).sum()) for kind in kinds},
        "P of all": round(found.all_identified, 2),
        **{f"assumptions that {kind}": int((state == kind).sum()) for kind in states},
        "cautions": len(found.caution),
    }


rows = [
    verdicts(table.name, fit, idata),
    verdicts("simulated sequences", moves, edges),
    verdicts("firms", tasks, uses),
]
pd.DataFrame(rows).set_index("data")

# %% [markdown]
# ## What to take home
#
# * A verdict is about a *graph*. First ask whether there is one to speak of: cautions, restarts, chains.
# * *Identified* wants an assumption that holds, not only a high P. Count the lines that cannot be checked,
#   and say them aloud when you report the result.
# * *Mixed* is a result too. What a set of latents does together may still be found:
#   [What can be recovered when not everything can](what_can_be_recovered.md).
# * Advice is about data: another feature, another action, another task. Identification is seldom bought with
#   more computing.
