"""What a thread is told does not depend on what other threads do, and they leave the process as it was."""

from __future__ import annotations

import threading
import warnings

import numpy as np
import pytest
import torch

import pyro_sparse as ps
from pyro_sparse._utils.quiet import ignored
from pyro_sparse._utils.torch_state import isolated, others_may_run, undisturbed
from tests.inference.edges.test_dtypes import fitted, table

pytestmark = pytest.mark.usefixtures("hurried_module")


CHAINS = {"method": "mcmc", "sweeps": 24, "warm_up": 4, "num_draws": 6, "chains": 2}


@pytest.fixture(scope="module", params=["bernoulli", pytest.param("normal", marks=pytest.mark.slow)])
def fit(request):
    return fitted(request.param, "linear", "float64")


def edges(fit, seed):
    with ignored(category=RuntimeWarning):
        return ps.edge_prob(fit.edge_posterior(**CHAINS, seed=seed)).to_numpy()


def together(jobs):
    """The answers of all jobs, begun at once, each in its thread."""
    ready, found = threading.Barrier(len(jobs)), {}

    def run(name, job):
        ready.wait(30)
        found[name] = job()

    threads = [threading.Thread(target=run, args=item) for item in jobs.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return found


@pytest.mark.slow(hurried=True)
def test_answers_in_threads_are_those_of_one_alone(fit):
    x = table("bernoulli" if fit.table.scale.max() == 1 else "normal")
    jobs = {
        "edges": lambda: edges(fit, 0),
        "other edges": lambda: edges(fit, 1),
        "transform": fit.transform,
        "predict": fit.predict,
        "sample": lambda: fit.sample(5, seed=2),
        "log_likelihood": fit.log_likelihood,
        "impute": lambda: fit.impute(np.where(np.arange(x.shape[1]) == 1, np.nan, x)),
        "fit": lambda: fitted("poisson", "linear", "float32").weights,
    }
    alone = {name: job() for name, job in jobs.items()}
    state, filters, threads = torch.get_rng_state(), list(warnings.filters), torch.get_num_threads()
    for _ in range(2):
        found = together(jobs)
        for name, answer in alone.items():
            np.testing.assert_array_equal(found[name], answer, err_msg=name)
    assert torch.equal(torch.get_rng_state(), state)
    assert warnings.filters == filters
    assert torch.get_num_threads() == threads


def test_one_seed_is_used_at_a_time():
    """Without the lock the second thread's seed is drawn from by the first."""
    seeded, may_go_on = threading.Event(), threading.Event()
    found = {}

    def first():
        with undisturbed(seed=1):
            seeded.set()
            may_go_on.wait(0.2)  # in which the second would seed the stream
            found["first"] = torch.rand(3)

    def second():
        seeded.wait(10)
        with undisturbed(seed=2):
            may_go_on.set()
            found["second"] = torch.rand(3)

    threads = [threading.Thread(target=job) for job in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    for seed, name in ((1, "first"), (2, "second")):
        expected = torch.rand(3, generator=torch.Generator().manual_seed(seed))
        assert torch.equal(found[name], expected), name


def test_threads_that_a_call_waits_for_get_their_turn():
    found = []

    def work():
        with undisturbed(seed=3):
            found.append(float(torch.rand(())))

    with undisturbed(seed=4), isolated():
        expected = torch.rand(2, generator=torch.Generator().manual_seed(4))
        first = torch.rand(())
        thread = threading.Thread(target=work)
        with others_may_run():
            thread.start()
            thread.join(10)
        assert found == [float(torch.rand((), generator=torch.Generator().manual_seed(3)))]
        assert torch.equal(torch.stack([first, torch.rand(())]), expected)
    work()  # and the turn is free again
    assert len(found) == 2


def test_filters_of_warnings_survive_threads_that_leave_in_the_order_they_came():
    """By turns `warnings.catch_warnings` leaves one thread's filters to all."""
    before, inside, left = list(warnings.filters), threading.Event(), threading.Event()

    def first():
        with ignored("nobody says this"):
            inside.set()
            left.wait(0.1)

    def second():
        inside.wait(10)
        with ignored("nor this"):
            left.set()

    together({"first": first, "second": second})
    assert warnings.filters == before
