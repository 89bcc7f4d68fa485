"""Declarations: what takes one away, and what does not."""

from __future__ import annotations

import types

import pytest
import torch
from torch import nn

from pyro_sparse._utils.declared import Declared, changes, hooks, keeps


class Base(nn.Module):
    declares = (Declared("sum", free=frozenset({"note"})), Declared("rows", rests_on=frozenset({"total"})))
    note = "base"

    def __init__(self):
        super().__init__()
        self.line = nn.Linear(2, 1)

    def total(self, x):
        return self.each(x).sum()

    def each(self, x):
        return self.line(x)

    @property
    def size(self):
        return 1


class Same(Base):
    """Another method, a free name, a new way to be made and shown."""

    note = "mine"
    total = Base.total

    def __init__(self):
        super().__init__()
        self.extra = 1

    def __repr__(self):
        return "Same()"

    def more(self):
        return 2


class Mixin:
    def each(self, x):
        return x


class Mixed(Mixin, Base):
    """`each` by a mixin."""


class Sized(Base):
    size = 3


class Again(Mixed):
    declares = Base.declares


class Below(Again):
    def total(self, x):
        return 2 * super().total(x)


class Called(Base):
    def __call__(self, x):
        return 0


def names(thing, kind="sum"):
    return [(one.owner, one.name, one.on_object) for one in changes(thing, kind)]


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        (Base, []),
        (Same, []),
        (Mixed, [("Mixin", "each", False)]),
        (Sized, [("Sized", "size", False)]),
        (Again, []),
        (Below, [("Below", "total", False)]),
        (Called, [("Called", "__call__", False)]),
    ],
)
def test_what_takes_a_declaration_away(kind, wanted):
    assert names(kind()) == wanted
    assert keeps(kind(), "sum") is not wanted or not wanted


def test_only_the_names_that_it_rests_on():
    assert names(Mixed(), "rows") == [] and keeps(Mixed(), "rows")
    assert names(Below(), "rows") == [("Below", "total", False)]


def test_the_object_itself():
    one = Base()
    one.each = types.MethodType(lambda self, x: x, one)
    assert names(one) == [("Base", "each", True)] == names(one, "rows")
    assert str(changes(one, "sum")[0]) == "each, set on the Base itself,"
    other = Base()
    other.note, other.fresh = "mine", lambda: 3
    assert names(other) == []


def test_no_declaration_at_all():
    assert names(nn.Linear(1, 1)) == [("Linear", "", False)] and not keeps(nn.Linear(1, 1), "sum")
    assert names(Base(), "other") == [("Base", "", False)]


def test_hooks_by_name():
    one = Base()
    assert hooks(one) == []
    one.line.register_forward_pre_hook(lambda module, given: None)
    assert hooks(one) == ["line"] and hooks(one, leave_out=("line",)) == []
    one.register_forward_hook(lambda module, given, found: torch.zeros(1))
    assert hooks(one) == ["Base", "line"]
