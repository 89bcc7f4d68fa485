"""Measurement models in lavaan's syntax: what is read, what is refused, names of factors in every output."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import pyro_sparse as ps
from pyro_sparse.models import SparseDecoder, from_lavaan, read_lavaan

pytestmark = pytest.mark.usefixtures("hurried_module")

HOLZINGER = Path(__file__).resolve().parents[3] / "shared" / "data" / "holzinger.csv"
TEXT = """
# Holzinger and Swineford (1939)
visual  =~ x1 + x2 + x3
textual =~ x4 + x5 +
           x6           ! a line goes on after a plus
speed   =~ NA*x7 + 1*x8 + x9; speed =~ 0*x1
"""


def test_factors_items_and_edges_are_read():
    read = read_lavaan(TEXT)
    assert read.factors == ["visual", "textual", "speed"]
    assert read.items == [f"x{j}" for j in range(1, 10)]
    assert read.edges == [(f"x{3 * k + j}", read.factors[k]) for k in range(3) for j in (1, 2, 3)]
    crossed = read_lavaan("a =~ x + y + z\nb =~ z + u\n  + v")
    assert crossed.items == ["x", "y", "z", "u", "v"] and ("z", "b") in crossed.edges


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "has no statement"),
        ("# nothing", "has no statement"),
        ("visual ~ x1", "measures nothing.*program"),
        ("visual ~~ speed", "measures nothing.*factors are correlated as it is"),
        ("visual = ~ x1", "measures nothing"),
        ("visual =~ x1 + + x2", "has '' where an item is wanted"),
        ("visual =~ x1 x2", "has 'x1 x2' where an item is wanted"),
        ("visual =~ 0.7*x1 + x2", "has '0.7' for the loading of 'x1'"),
        ("visual =~ a*x1 + a*x2", "has 'a' for the loading of 'x1'"),
        ("a b =~ x1", "has 'a b' for a factor"),
        ("a =~ x1 + x2 + x1", "names 'x1' of 'a' again"),
        ("a =~ x1 + x2\nb =~ x3 + x4\ng =~ a + b", "factors of factors"),
        ("a =~ x1\nb =~ x2", "2 factors and 2 items"),
    ],
)
def test_what_is_no_measurement_is_refused(text, words):
    with pytest.raises(ValueError, match=words):
        from_lavaan(text)
    with pytest.raises(TypeError, match="got a list"):
        from_lavaan([text])


def test_what_the_text_says_is_not_given_again():
    with pytest.raises(TypeError, match="got \\['forbidden'\\], and the text says that"):
        from_lavaan(TEXT, forbidden=[("x1", 1)])


def test_comments_and_zeros():
    read = read_lavaan("a =~ 1.0*x + y # first; b =~ z\nb =~ u + v + w; a =~ 0*u")
    assert read.edges == [("x", "a"), ("y", "a"), ("u", "b"), ("v", "b"), ("w", "b")]
    assert read.zeros == [("u", "a")]
    model = from_lavaan("a =~ x + y\nb =~ u + v + w; a =~ 0*u", explore=True)
    model.setup(feature_names=["x", "y", "u", "v", "w"])
    assert not model.permitted[2, 0] and model.permitted.sum() == 9
    with pytest.raises(ValueError, match="0\\*q of 'a'"):
        read_lavaan("a =~ x + y + 0*q")


def test_confirmatory_forbids_what_the_text_does_not_say_and_exploratory_asks_for_it():
    model = from_lavaan(TEXT)
    model.setup(feature_names=read_lavaan(TEXT).items)
    wanted = np.kron(np.eye(3), np.ones((3, 1))).astype(bool)
    np.testing.assert_array_equal(model.must.numpy(), wanted)
    np.testing.assert_array_equal(model.permitted.numpy(), wanted)
    model = from_lavaan(TEXT, explore=True, likelihood="ordinal")
    model.setup(feature_names=read_lavaan(TEXT).items)
    np.testing.assert_array_equal(model.must.numpy(), wanted)
    assert not model.permitted[0, 2] and model.permitted.sum() == 26  # all but what the text says is zero
    assert model.likelihood.name == "ordinal" and model.decoder_kind == "linear"


def _table(n=200, seed=0):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, 2))
    x = np.column_stack([z[:, k] + 0.7 * rng.normal(size=n) for k in (0, 0, 0, 1, 1, 1)])
    return pd.DataFrame(x, columns=list("abcdef"))


@pytest.mark.slow(hurried=True)
def test_names_of_factors_are_in_every_output(tmp_path):
    model = from_lavaan("left =~ a + b + c; right =~ d + e + f", explore=True)
    fit = ps.fit(model, _table(), restarts=2, steps=200, seed=0, progress=False)
    assert fit.factor_names == ["left", "right"]
    idata = fit.edge_posterior(sweeps=200, warm_up=60)
    edges = ps.summary(idata)
    assert set(edges["factor"]) == {"left", "right"}
    assert list(idata["posterior"]["factor"].values) == ["left", "right"]
    fit.save(tmp_path / "fit.pt")
    assert ps.load(tmp_path / "fit.pt").factor_names == ["left", "right"]
    # and the named factor is the one that its items depend on
    assert np.corrcoef(fit.transform(_table())[:, 1], _table()["d"])[0, 1] ** 2 > 0.5


def test_edges_may_name_their_factor():
    model = SparseDecoder(
        6, 2, factor_names=["left", "right"], anchors={"a": "left"}, required=[("d", "right")],
        forbidden=[("b", "right")], decoder="linear",
    )  # fmt: skip
    model.setup(feature_names=list("abcdef"))
    assert model.must[0, 0] and not model.permitted[0, 1]
    assert model.must[3, 1] and not model.permitted[1, 1]
    model = SparseDecoder(6, 2, factor_names=["left", "right"], anchors={"a": "middle"})
    with pytest.raises(ValueError, match="no factor is called 'middle'; wanted one of"):
        model.setup(feature_names=list("abcdef"))


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["a"], "wanted 2 names"),
        (["a", "a"], "each once"),
        ("ab", "wanted a list of texts"),
        ([1, 2], "wanted a list of texts"),
    ],
)
def test_names_that_are_none_are_refused(names, words):
    with pytest.raises((ValueError, TypeError), match=words):
        SparseDecoder(6, 2, factor_names=names)


def test_factors_that_can_change_places_have_no_names():
    model = SparseDecoder(6, 2, factor_names=["left", "right"])
    with pytest.raises(ValueError, match="nothing tells left and right apart"):
        model.setup()


@pytest.mark.slow
@pytest.mark.skipif(not HOLZINGER.exists(), reason="the table is not here")
def test_pupils_and_their_tests():
    """Loadings of the confirmatory model against those that lavaan's tutorial prints, standardised."""
    table = pd.read_csv(HOLZINGER)
    items = read_lavaan(TEXT).items
    fit = ps.fit(from_lavaan(TEXT), table[items], restarts=4, seed=0, progress=False)
    edges = ps.summary(fit.edge_posterior()).set_index(["feature", "factor"])
    published = [0.772, 0.424, 0.581, 0.852, 0.855, 0.838, 0.570, 0.723, 0.665]  # std.all; SE .03 to .06
    own = [edges.loc[edge, "weight"] for edge in read_lavaan(TEXT).edges]
    np.testing.assert_allclose(np.abs(own), published, atol=0.11)
    fit = ps.fit(from_lavaan(TEXT, explore=True), table[items], restarts=4, seed=0, progress=False)
    edges = ps.summary(fit.edge_posterior()).set_index(["feature", "factor"])
    assert edges.loc[("x9", "visual"), "probability"] > 0.9
