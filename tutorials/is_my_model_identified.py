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
# A model is *identified* if no second set of latents explains the data as well with as simple a graph.
# Theorems say when this is the case. `ps.identify` applies such a theorem to every posterior draw of the
# learned graph, and checks those of its assumptions that can be checked. The result is a certificate.
#
# It is easy to read more into a certificate than it says. This page goes through three of them: for a table,
# for sequences and for tasks. Each time it asks four questions: **what is claimed, under which theorem and
# assumptions, what is not claimed, and what would help?** The fits are small and short, so that the page runs
# quickly. They show how to read a certificate; their results are not to be believed.

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
# 1. **Caution.** Reasons to doubt the graph itself. If they are serious, stop here.
# 2. **Criterion.** Whose theorems were applied.
# 3. **Verdicts**, one for each latent. *Identified*: at least 95 % of the draws say so. *Mixed*: at most 5 %
#    do. *Unresolved*: in between, or no other restart agrees. *Empty*: it reaches nothing. *Alone*: there is
#    no other latent to be mixed with. P is the share of draws of the graph in which the criterion holds. It
#    is **not** the probability that the latent is real.
# 4. **Assumptions.** *Holds* and *FAILS* are measured on the fit. *Cannot be checked* is an assumption that
#    you make; the program cannot.
#
# ## 1. A table
#
# The table has the answers to 25 personality questions if there is a local copy (`BFI_CSV` is its path);
# otherwise it has the breast-cancer measurements that come with scikit-learn. The decoder is linear here, as
# in a factor analysis. The edge probabilities come from short Markov chains.

# %%
copy = os.environ.get("BFI_CSV")
table = ps.datasets.load_bfi(copy) if copy else ps.datasets.load_embedded("breast_cancer")
model = ps.models.SparseDecoder(
    table.x.shape[1], 5, decoder="linear", prior=ps.priors.SpikeSlabLasso(lambda0=10.0)
)
fit = ps.fit(
    model, table.x, restarts=5, n_factors_init=[5] * 5, steps=600, lasso_weight=5.0, seed=0, progress=False
)
idata = fit.edge_posterior("mcmc", sweeps=500, warm_up=150, num_draws=250)
certificate = ps.identify(fit, idata=idata)
print(certificate)

# %% [markdown]
# **What is claimed.** For a factor that is *identified*: whichever draw of the graph is the true one, no
# other axes have the same zeros. Several criteria were applied, and `by` names the one that assumes least
# beyond the graph. *Anchors* are features that depend on one factor only. *Zeros* are all missing edges
# together, and they count only beyond those that any rotated solution could have. Each criterion has its own
# probability:

# %%
certificate.criteria.round(2)

# %% [markdown]
# **Under which assumptions.** The decoder is linear. That is the hard case: with normal factors a linear
# model fits exactly as well in any rotation, and the caution says so. The only argument for these axes is
# that they need few edges. So everything depends on one distinction that no table can make: *small is not
# zero*. A question may depend a little on a second trait. The prior was set to call that no edge
# (`lambda0=10`).
#
# **What is not claimed.** That the factors are the traits that the questions were written for. That there
# are five of them. That no common cause was omitted. If a factor has a single feature in some draws, it
# cannot be told from that feature's noise; the certificate then says *the noise of* and the feature's name.
# *Unresolved* factors have edges that are neither likely nor unlikely:

# %%
open_edges = ps.summary(idata).query("0.2 < probability < 0.8")
print(f"{len(open_edges)} of {table.x.shape[1] * 5} edges have a probability between .2 and .8")
open_edges[["probability", "weight", "gap"]].head(6).round(2)

# %% [markdown]
# Their weights are intermediate: more than nothing, less than clear edges. Such a wide spike (`lambda0=10`)
# is part of the reason. The theory has only edges and zeros. A table of answers has much in between, and the
# verdicts are as undecided as we are about what counts.
#
# **What would help.** `would help` names features, because the criterion is about features: in a new
# questionnaire, a question that asks for one trait and nothing else. If it says *more rows*, the edges are
# uncertain, not the structure. For an unresolved factor in an established questionnaire you may also
# *specify* anchors (`SparseDecoder(anchors=…)`). They are then your claim, and no longer that of the data.
#
# ## 2. Sequences
#
# There are three latents, each driven by its own past and by an action of its own. We know this because the
# sequences are simulated (`transition_data`); the model does not. It sees six nonlinear mixtures of the
# latents, and the actions.

# %%
data = ps.datasets.transition_data("ActionTimeDiag", n=300, d_z=3, d_x=6, T=4, seed=0)
x, z, actions = data.part("train")
model = ps.models.LatentTransition(6, 3, n_actions=3, hidden=16, units=16, gated_units=8)
moves = ps.fit(model, x, actions=actions, restarts=2, steps=300, edge_steps=50, seed=0, progress=False)
edges = moves.edge_posterior(num_draws=200)
certificate = ps.identify(moves, idata=edges)
print(certificate)

# %% [markdown]
# **What is claimed.** The theorem is that of mechanism sparsity. A latent is identified if the graph of what
# drives what distinguishes it from all others: for instance, an action that moves it and not them. The
# criterion looks only at the graph, in each draw.
#
# **Under which assumptions.** *Sufficient influence* is measured: the derivatives of the transition must
# vary enough, in as many directions as the graph has edges. A constant derivative is one matrix, and one
# matrix can be made sparse in many axes. If this FAILS, the theorem does not apply, **and the verdicts above
# it are statements about a graph, not about latents**; if it cannot be checked, nobody knows whether it does.
# There is a line for the past and one for the actions, and a latent needs only one of them. The other
# assumptions can never be checked: that different latents never produce the same frame, that no hidden cause
# drives several latents, that the noise is Gaussian.
#
# **How to read P here.** The criterion holds in nearly all draws, and still a latent that the caution names
# is not called identified: the other restart ended with another in its place. The draws are those of *one*
# restart's graph, and take no account of the other. So the certificate withholds that verdict.
#
# **What is not claimed.** That the graph is right. Its probabilities are conditional on *the latents that
# were found*. Here we can check. How well does each true latent correlate with its best match, and which
# edges were found?

# %%
found = moves.transform()
matched = metrics.mcc(z.reshape(-1, 3), np.asarray(found).reshape(-1, 3), "spearman")
print("rank correlation with the truth:", matched.correlation.round(2))
ps.summary(edges, fdr=0.1, selected_only=True)[["graph", "probability", "gap"]].round(2)

# %% [markdown]
# The truth has six edges: each latent is driven by its own past and by one action. The latents found are
# nearly right, and a little mixed. That is enough to create edges that do not exist, some with a probability
# near 1. Therefore edges into and out of a latent in doubt are *open*, whatever their probability, and are
# not in the table (`include_doubted=True` shows them), and the certificate withholds its verdict on it.
#
# **What would help.** More and longer sequences; more steps (this fit is far too short: the default is many
# times as long); and above all an action that moves one latent only and that somebody chose at random.
#
# ## 3. Tasks
#
# The data are eleven firms with twenty years each (Grunfeld's data). There is one regression for each firm,
# and the firms share latents.

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
# 3.5 can be refuted but not confirmed. The rest are assumptions that you make: a latent means the same in
# every firm, targets are linear in it, and the weights do not happen to line up.
#
# **What is not claimed.** *Unresolved* is not *wrong*. Some likely graphs would identify the latents and
# some would not, and twenty years per firm do not decide between them. The caution is a second reason: even
# given a graph, these tasks' weights do not favour the two axes over others in their plane. A verdict also
# falls back to *unresolved* if another restart did not find the latent, or if the tasks' weights do not tell
# it from others.
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
# ## Conclusions
#
# * A verdict is about a *graph*. First check that the graph can be trusted: cautions, restarts, chains.
# * *Identified* needs an assumption that holds, not only a high P. Count the lines that cannot be checked,
#   and state them when you report the result.
# * *Mixed* is a result too. What a set of latents does together may still be found:
#   [What can be recovered when not everything can](what_can_be_recovered.md).
# * The advice is about data: another feature, another action, another task. More computing seldom buys
#   identification.
