"""Every function that reads a fit or its edges, over every kind of fit: an answer, or a message in our words.

What a function cannot read it refuses with a message that begins with the name of the argument, never with an
error of Python or of another library.
"""

from __future__ import annotations

import inspect
import warnings

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch

import pyro_sparse as ps

pytestmark = pytest.mark.slow
FITS = ("linear", "mlp", "dependency", "transition", "observed", "tasks", "pair", "program")
CHAINS = {"sweeps": 40, "warm_up": 20, "progress": False}
OPTIONS = {
    "linear": CHAINS,
    "mlp": CHAINS,
    "pair": {"cosine": 0.0, "least_fires": 1},
    "program": {"sweeps": 40, "progress": False},
}
OTHERS = {"nothing": None, "text": "fit.txt", "numbers": np.zeros((4, 3))}
READERS = {
    f"{module.__name__.removeprefix('pyro_sparse').lstrip('.')}.{name}".lstrip("."): getattr(module, name)
    for module in (ps, ps.plots)
    for name in module.__all__
    if inspect.isfunction(getattr(module, name))
    and next(iter(inspect.signature(getattr(module, name)).parameters), "") in ("fit", "idata", "result")
}
OURS = ("fit: ", "idata: ", "result: ", "graphs: ", "sets: ", "report: ", "X: ")


def factor_analysis(d):
    with d.features:
        loading = ps.edges(
            "W", log_odds=-1.0, slab=dist.Normal(0.0, 1.0), spike=dist.Normal(0.0, 0.05), to=d.factors
        )
        sd = pyro.sample("sd", dist.LogNormal(0.0, 0.5))
    with d.rows:
        z = ps.factors("z", dist.Normal(torch.zeros(d.n_factors), 1.0))
    with d.rows, d.features:
        pyro.sample("x", dist.Normal(z @ loading.mT, sd).mask(d.seen), obs=d.x)


def of_kind(kind):
    rng = np.random.default_rng(0)
    short = {"restarts": 2, "steps": 40, "progress": False}
    if kind == "observed":
        steps = rng.normal(size=(20, 10, 4)).cumsum(1)
        return ps.fit(ps.models.ObservedTransition(4), steps, restarts=2, progress=False)
    if kind == "transition":
        return ps.fit(ps.models.LatentTransition(4, 2), rng.normal(size=(20, 10, 4)).cumsum(1), **short)
    if kind == "tasks":
        x = rng.normal(size=(120, 5))
        y = x[:, 0] + rng.normal(size=120)
        return ps.fit(ps.models.MultiTaskRegression(5, 2), x, y, task=np.repeat(range(6), 20), **short)
    if kind == "pair":
        torch.manual_seed(0)
        layer = torch.nn.Sequential(torch.nn.Linear(6, 12), torch.nn.GELU(), torch.nn.Linear(12, 6))
        before = (torch.rand(400, 10) < 0.3) * torch.rand(400, 10) @ torch.randn(10, 6)
        pair = ps.models.AutoencoderPair(10, 8, k=3, between=layer)
        return ps.fit(pair, (before, layer(before).detach()), batch_size=32, **short)
    x = ps.datasets.sim1(n=100, seed=1).x
    if kind == "program":
        program = ps.Program(factor_analysis, n_factors=2)
        return ps.fit(program, ps.Data(x), restarts=2, progress=False)
    model = {
        "linear": ps.models.SparseDecoder(7, 2, decoder="linear"),
        "mlp": ps.models.SparseDecoder(7, 2),
        "dependency": ps.models.DependencyVAE(7, 2),
    }[kind]
    return ps.fit(model, x, **short)


@pytest.fixture(scope="module")
def fits():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # short fits have many doubts
        made = {kind: of_kind(kind) for kind in FITS}
        edges = {kind: fit.edge_posterior(**OPTIONS.get(kind, {})) for kind, fit in made.items()}
    return {"fit": made, "edges": edges, "other": OTHERS}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("reader", READERS)
def test_what_a_function_cannot_read_it_refuses_in_our_words(reader, fits, tmp_path):
    import matplotlib.pyplot as plt

    function = READERS[reader]
    further = {
        "enrichment": ({"a": ["x1", "x2"]},),
        "write_graph": (tmp_path / "graph.dot",),
        "report": (tmp_path / "report.html",),
        "plots.plot_predictive": (np.zeros((4, 7)),),
    }
    obscure = {}
    for what, things in fits.items():
        for kind, thing in things.items():
            further["factor_effects"] = (fits["edges"].get(kind), np.arange(100))
            try:
                function(thing, *further.get(reader, ()))
            except (TypeError, ValueError, NotImplementedError) as error:
                if not str(error).startswith(OURS):
                    obscure[what, kind] = repr(error)
            except Exception as error:
                obscure[what, kind] = repr(error)
            finally:
                plt.close("all")
    assert not obscure


def test_every_kind_of_fit_has_edges_that_a_table_lists(fits):
    for kind, idata in fits["edges"].items():
        table = ps.summary(idata)
        assert len(table), kind
        assert idata.attrs["verdict"], kind
