"""Steps as graphs without an accelerator: what is recorded is what every later step of its kind does."""

from __future__ import annotations

import contextlib
import importlib
import pkgutil

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import pyro_sparse as ps
from pyro_sparse.inference.table import captured_steps
from pyro_sparse.inference.table.captured_steps import CapturedSteps
from pyro_sparse.inference.table.sparse_elbo import can_be_captured
from pyro_sparse.inference.table.sparse_run import SparseRun
from pyro_sparse.models import SparseDecoder
from pyro_sparse.priors import SpikeSlabLasso
from tests.inference._captured import MODELS, run_of, trained

pytestmark = pytest.mark.usefixtures("hurried_module")


class Operations(TorchDispatchMode):
    """What torch is told: operations, shapes, and every number that is not in a tensor."""

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.found.append((str(func), str([told(a) for a in args]), str(told(kwargs or {}))))
        return func(*args, **(kwargs or {}))


def told(value):
    if isinstance(value, torch.Tensor):
        return tuple(value.shape), value.dtype
    if isinstance(value, list | tuple):
        return [told(each) for each in value]
    if isinstance(value, dict):
        return {name: told(each) for name, each in value.items() if name != "generator"}
    return type(value) if isinstance(value, torch.ScriptObject) else value


class Again:
    """A graph's stand-in: takes the step call by call, and holds its operations against the first time's."""

    def __init__(self, steps):
        self.steps, self.first = steps, None
        self.terms = {}

    def replay(self):
        with self.steps._in_tensors(), Operations() as seen:
            self.terms.update(self.steps._work())
        self.first = self.first or seen.found
        assert seen.found == self.first
        # a number that becomes a tensor there is sent, and waited for; that of the straight lasso stays here
        sent = [name for name, *_ in seen.found if name == "aten.lift_fresh.default"]
        assert not sent or self.steps.run._linear


@pytest.fixture
def there(monkeypatch):
    """The processor as an accelerator: tensors and no arrays, no machine code, steps that are recorded."""
    for info in pkgutil.walk_packages(ps.__path__, "pyro_sparse."):
        if info.name.endswith("__main__"):
            continue
        module = importlib.import_module(info.name)
        if hasattr(module, "arrays"):
            monkeypatch.setattr(module, "arrays", lambda *given: (torch, *(t.detach() for t in given)))
        if hasattr(module, "COMPILED"):
            monkeypatch.setattr(module, "COMPILED", False)

    def record(steps):
        graph = Again(steps)
        return graph, graph.terms

    monkeypatch.setattr(CapturedSteps, "_capture", record)
    monkeypatch.setattr(captured_steps, "_watching", lambda: contextlib.nullcontext([]))
    monkeypatch.setattr(SparseRun, "_capturable", lambda run: run.closed_form is not None)


@pytest.mark.slow
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("options", MODELS, ids=str)
def test_a_recorded_step_does_what_every_step_of_its_kind_does(there, options, missing):
    ends = []
    for recorded in (True, False):
        run = run_of(options, missing=missing)
        if not recorded:
            run.captured = None
        ends.append(trained(run))
        if recorded:
            found = run.captured.by_kind
            assert {kind[0] for kind, each in found.items() if each != "watched"} >= {
                "start",
                "dense",
                "lasso",
            }
    for one, other in zip(*ends, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_what_waits_for_a_value_is_not_recorded(there, monkeypatch):
    monkeypatch.setattr(captured_steps, "_watching", lambda: contextlib.nullcontext(["waited"]))
    monkeypatch.setattr(CapturedSteps, "_capture", lambda steps: pytest.fail("recorded"))
    run = run_of({})
    trained(run)
    assert set(run.captured.by_kind.values()) == {"refused"}


def test_steps_with_work_of_their_own_are_not_recorded(there):
    run = run_of({})
    wanted = {0, *(int(share * 60) for share in (run.schedule.reintroduce_at, run.schedule.lasso_until))}
    left_out = []
    for step in range(60):
        if run.kind() is None:
            left_out.append(step)
        run.step = step + 1
    assert set(left_out) == wanted


def test_numbers_that_are_not_finite_are_named(there):
    run = run_of({})
    trained(run, 3)
    with torch.no_grad():
        run.model.likelihood.log_sigma[1] = float("nan")
    with pytest.raises(
        FloatingPointError, match=r"step 3: site .* in restart\(s\) \[1\]; lower learning_rate"
    ):
        run.advance()


def test_on_a_processor_nothing_is_recorded():
    assert run_of({}).captured is None


class Own(SpikeSlabLasso):
    """A caller's prior, which may do other things in each step."""


@pytest.mark.parametrize("options, known", [({}, True), ({"prior": Own()}, False)])
def test_only_what_is_known_is_recorded(options, known):
    model = SparseDecoder(7, 2, **options)
    assert can_be_captured(model) == known
    model.after_step = lambda batch, progress: None
    assert not can_be_captured(model)
