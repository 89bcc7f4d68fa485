"""The page: it says what the fit says, needs nothing from outside, and takes no orders from feature names."""

from __future__ import annotations

import base64
import re
import sys
from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import pyro_sparse as ps
from pyro_sparse.findings.finding import Finding
from pyro_sparse.inference.edges.mcmc import sampler
from pyro_sparse.pages.any_fit import report
from pyro_sparse.pages.curves import shape_of
from pyro_sparse.pages.of_table import _shows_numbers, gather
from pyro_sparse.pages.page import percent
from pyro_sparse.posterior import arviz as arviz_files
from pyro_sparse.posterior.arviz import get_group
from tests._fake_fit import fake_fit, fit_with_strengths

pytestmark = pytest.mark.usefixtures("hurried_module")

pytest.importorskip("jinja2")
matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

VOID = {"meta", "link", "br", "img", "source", "hr", "input", "polyline"}


class Page(HTMLParser):
    """Tags, their attributes, and the text; complains about tags closed out of order."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.text = [], [], ""
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("style", "script"):
            self.text += data


def write(fit, tmp_path, **options):
    path = report(fit, tmp_path / "report.html", **options)
    text = path.read_text(encoding="utf-8")
    page = Page(text)
    page.text = re.sub(r"\s+", " ", page.text)
    return text, page


@pytest.fixture(scope="module")
def fit():
    return fake_fit(findings=[Finding("training", "one restart <failed>")])


@pytest.fixture(scope="module")
def written(fit, tmp_path_factory):
    return write(fit, tmp_path_factory.mktemp("report"), X=fit.sample(100))


def test_the_page_is_complete_in_itself(written):
    text, page = written
    assert "://" not in re.sub(r"data:[^\"]*", "", text)
    assert "default-src 'none'" in text  # a browser would refuse what is not in the page
    addresses = [a[key] for _, a in page.tags for key in ("src", "srcset", "href") if key in a]
    assert all(address.startswith(("data:", "#")) for address in addresses)
    assert [tag for tag, _ in page.tags if tag in ("script", "link", "iframe")] == ["script"]
    anchors = {address[1:] for address in addresses if address.startswith("#")}
    ids = [a["id"] for _, a in page.tags if "id" in a]
    assert anchors <= set(ids) and len(ids) == len(set(ids))
    assert len(text) < 1_000_000


def test_pictures_are_inlined_for_light_and_dark_and_have_words(written):
    _, page = written
    pictures = [a for tag, a in page.tags if tag == "img"]
    assert len(pictures) == 7
    assert all(a["alt"] for a in pictures)
    sources = [a for tag, a in page.tags if tag == "source"]
    assert {a["media"] for a in sources} == {"screen and (prefers-color-scheme: dark)"}
    for light, dark in zip(pictures, sources, strict=True):
        svgs = [base64.b64decode(a.split(",")[1]).decode() for a in (light["src"], dark["srcset"])]
        assert all("<svg" in svg for svg in svgs)
        assert svgs[0] != svgs[1]


def test_it_says_what_the_fit_says(written):
    _, page = written
    assert "14 edges between 12 features and 3 factors" in page.text
    assert "Three factors, by score, with edges to 12 of 12 features." in page.text
    assert "5 of 5 comparable restarts found much the same loadings, the best included" in page.text
    assert "1 / 4" not in page.text and "3 / 4" in page.text and "14 / 48" in page.text
    assert "1 factor without a selected edge: factor 4." in page.text
    assert "One restart <failed>." in page.text  # escaped, hence back as text
    assert "Scores, no probabilities" in page.text and "scores, not calibrated probabilities" in page.text
    assert "SpikeSlabLasso" in page.text
    assert f"numpy{np.__version__}" in page.text.replace(" ", "")


def test_the_conclusion_comes_first_then_pictures_tables_and_the_model_card(written):
    text, page = written
    order = ["main", "pictures", "edges", "identified", "restarts", "card", "words"]
    assert [a["id"] for tag, a in page.tags if tag == "h2" and a["id"] in order] == order
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after <= before + 1 for before, after in zip(levels, levels[1:], strict=False))
    assert text.index("What is known") < text.index("What is open") < text.index('id="cautions"')
    assert text.index('id="cautions"') < text.index("<img")


def test_it_can_be_read_without_eyes(written):
    _, page = written
    (html,) = [a for tag, a in page.tags if tag == "html"]
    assert html["lang"] == "en"
    assert all(a.get("scope") in ("col", "row") for tag, a in page.tags if tag == "th")
    first = next(a for tag, a in page.tags if tag == "a")
    assert first["class"] == "skip" and first["href"] == "#main"
    boxes = [
        a for _, a in page.tags if a.get("tabindex") == "0"
    ]  # what scrolls can be reached, and has a name
    assert boxes and all("aria-label" in a or "aria-labelledby" in a for a in boxes)


def test_every_word_of_a_heading_is_in_the_glossary(fit, tmp_path, no_pictures):
    for idata in (None, probable(fit)):
        facts = gather(fit, idata or fit.edge_posterior(num_draws=2), 0.1)
        anchors = [entry.anchor for entry in facts["words"]]
        assert len(anchors) == len(set(anchors))
        wanted = {anchor for anchor, _ in facts["edges"]["links"]} | {word for *_, word in facts["tiles"]}
        assert wanted <= set(anchors)


def contrast(one, other):
    """WCAG 2.2: (L1 + .05) / (L2 + .05) of relative luminances."""

    def luminance(colour):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return np.dot(linear, [0.2126, 0.7152, 0.0722])

    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def mixed(colour, share, ground):
    channels = [(int(colour[i : i + 2], 16), int(ground[i : i + 2], 16)) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(share * a + (1 - share) * b):02x}" for a, b in channels)


def test_texts_stand_out_from_what_is_behind_them(written):
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    style = re.search("<style>(.*?)</style>", written[0], re.S)[1]
    roots = [
        dict(re.findall(r"--([a-z]+): (#[0-9a-f]{6})", part))
        for part in re.findall(r":root \{(.*?)\}", style, re.S)
    ]
    assert len(roots) == 3
    light, dark, paper = roots[0], roots[0] | roots[1], roots[0] | roots[2]
    for theme in (light, dark, paper):
        grounds = {name: ("page", "card") for name in ("ink", "soft", "accent")}
        grounds |= {name: ("card",) for name in ("good", "mixed", "poor", "unknown")} | {"tagink": ("tag",)}
        grounds["ink"] += ("wash",)
        for text, behind in grounds.items():
            for ground in behind:
                assert contrast(theme[text], theme[ground]) >= 4.5, (text, ground, theme)
        for name in ("rise", "fall"):  # a correlation of 1, whose cell is coloured most
            assert contrast(theme["ink"], mixed(theme[name], 0.7, theme["card"])) >= 4.5


def test_the_table_is_the_fit(fit, written):
    _, page = written
    (link,) = [a["href"] for tag, a in page.tags if tag == "a" and a.get("download")]
    table = pd.read_csv(pd.io.common.BytesIO(base64.b64decode(link.split(",")[1])))
    assert len(table) == 14
    for _, row in table.iterrows():
        j, k = fit.feature_names.index(row["feature"]), fit.factor_names.index(row["factor"])
        assert row["score"] == pytest.approx(fit.edge_score[0, j, k])
        assert row["weight"] == pytest.approx(fit.weights[0, j, k])


@pytest.mark.slow
@pytest.mark.parametrize("prior", ["spike_slab_lasso", "laplace"])
def test_a_loaded_fit_asks_the_table_for_its_edges(prior, tmp_path, no_pictures, monkeypatch):
    monkeypatch.setitem(sampler._SWEEPS, "exact", (60, 20, 10))
    x = fake_fit(n_features=6, n_factors=2, n_active=2).sample(60)
    model = ps.models.SparseDecoder(6, 2, decoder="linear", prior=prior)
    whole = ps.fit(model, x, restarts=1, steps=100, progress=False)
    whole.save(tmp_path / "fit.pt")
    _, page = write(ps.load(tmp_path / "fit.pt"), tmp_path, X=x)
    assert ("scores, not calibrated probabilities" in page.text) == (prior == "laplace")


@pytest.mark.slow
def test_names_are_escaped(tmp_path):
    fit = fake_fit()
    bad = ["<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "{{ 7 * 7 }}", "$\\x{$", "</title>"]
    fit.feature_names[:5] = bad
    fit.factor_names[0] = "<b>factor</b>"
    fit.settings["note"] = "</style><script>"
    text, page = write(fit, tmp_path, X=fit.sample(50))
    assert len([tag for tag, _ in page.tags if tag == "script"]) == 1  # ours
    assert not [a for _, a in page.tags if "onerror" in a]
    assert "49" not in re.findall(r"<th scope=\"row\"[^>]*>(.*?)</th>", text)
    for name in [*bad, "<b>factor</b>"]:
        assert name in page.text


@pytest.mark.slow
def test_names_in_a_script_the_font_lacks(tmp_path):
    fit = fake_fit(n_restarts=2)
    fit.feature_names[0] = "測定 \U0001f9ec"
    _, page = write(fit, tmp_path)
    assert "測定 \U0001f9ec" in page.text


def test_verdicts(tmp_path, no_pictures):
    def verdict(fit):
        return gather(fit, fit.edge_posterior(num_draws=2), 0.1)["verdict"]

    assert verdict(fake_fit())["level"] == "good"
    assert verdict(fake_fit(n_restarts=1))["level"] == "unknown"
    none = fake_fit()
    none.edge_score = np.full_like(none.edge_score, 0.2)
    assert (verdict(none)["level"], verdict(none)["title"]) == ("poor", "No edge stands out")
    differ = fake_fit()
    rng = np.random.default_rng(0)
    differ.weights = np.where(
        np.arange(6)[:, None, None] == 0, differ.weights, rng.normal(size=differ.weights.shape)
    )
    assert verdict(differ)["level"] == "poor"
    some = fake_fit()
    some.edge_score[2, :3] = 0.0  # three edges disputed by a good restart
    assert verdict(some)["level"] == "mixed"
    _, page = write(none, tmp_path)
    assert "0 edges between 12 features and 0 factors" in page.text
    assert "No factor has a selected edge" in page.text
    assert "No edge is selected at a false-discovery rate of 10 %" in page.text


def test_restarts_with_fewer_factors_are_no_disagreement(tmp_path, no_pictures):
    alone = fake_fit(n_restarts=3)
    for r in (1, 2):  # far worse, for want of a factor
        alone.weights[r, :, 2] = alone.edge_score[r, :, 2] = 0.0
    alone.elbo[1:] = alone.heldout_elbo[1:] = -3.0
    facts = gather(alone, alone.edge_posterior(num_draws=2), 0.1)
    assert (facts["verdict"]["level"], facts["tiles"][-1][0]) == ("unknown", "0")
    assert [row["kept"] for row in facts["restarts"]] == [True, False, False]
    _, page = write(alone, tmp_path)
    assert "No other restart had as many factors" in page.text and "offered, 3 restarts." in page.text
    alone.heldout_elbo[1] = alone.heldout_elbo[0]  # as good without it
    assert gather(alone, alone.edge_posterior(num_draws=2), 0.1)["verdict"]["level"] == "poor"


def rows_of(facts, selected=True):
    """Rows of the table of edges as mappings of a heading to the text below it."""
    titles = [column["title"] for column in facts["edges"]["columns"]]
    rows = [row for row in facts["edges"]["rows"] if ("selected" in row["state"].split()) == selected]
    return [{"row": row, **dict(zip(titles, [row["head"], *row["cells"]], strict=True))} for row in rows]


def test_words_follow_the_shape_of_the_answer(fit):
    facts = gather(fit, fit.edge_posterior(num_draws=2), 0.1)
    rows = rows_of(facts)
    assert len(rows) == facts["n_edges"] == 14
    for row in rows:
        j, k = fit.feature_names.index(row["Feature"].text), fit.factor_names.index(row["Factor"].text)
        if j < len(fit.feature_names) - 1:  # the last one bends
            assert row["As the factor goes up"].text == ("rises" if fit.weights[0, j, k] > 0 else "falls")
        assert row["Score"].sort == pytest.approx(fit.edge_score[0, j, k])
        assert row["Share of variance"].sort == pytest.approx(fit.effects[0, j, k])
    x = np.linspace(-2, 2, 17)
    shapes = {
        "rises": x**3,
        "falls": -np.tanh(x),
        "dips": x**2,
        "peaks": 1 - x**2 + 0.3 * x,
        "waves": np.sin(2 * x),
        "flat": 0 * x + 3,
    }
    assert {name: shape_of(curve) for name, curve in shapes.items()} == {name: name for name in shapes}
    assert shape_of(x + 0.1 * x**2) == "rises"  # a little bent is not turned
    assert shape_of(x + 0.3 * np.sin(4 * x)) == "rises"  # nor are ripples
    assert shape_of(np.cos(3 * x)) == "waves"
    assert shape_of(x**2 + 0.2 * np.sin(8 * x)) == "dips"


def test_a_wave_is_told(tmp_path, no_pictures, monkeypatch):
    fit = fake_fit(n_features=4, n_factors=1, n_active=1)
    monkeypatch.setattr(fit, "inverse_transform", lambda z: np.sin(2 * z) * np.arange(1.0, 5), raising=False)
    _, page = write(fit, tmp_path)
    assert re.search(r"Where factor 1 is high, .* go up and down along the factor", page.text)
    assert "waves" in page.text and "middle" not in page.text


def test_a_bent_answer_is_told(tmp_path, no_pictures):
    fit = fake_fit(n_features=10, n_factors=2, n_active=2)
    fit.edge_score[:, -1, 0] = 0.99
    fit.weights[:, -1, 0] = 0.01
    _, page = write(fit, tmp_path)
    assert "item 10 is high at both ends of the factor, low in the middle" in page.text


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0, "0 %"),
        (0.0004, "<0.1 %"),
        (0.0312, "3.1 %"),
        (0.099, "9.9 %"),
        (0.1, "10 %"),
        (0.996, "100 %"),
        (1, "100 %"),
    ],
)
def test_percent(share, text):
    assert percent(share) == text


def test_without_data_the_check_is_left_out_and_said(fit, tmp_path, no_pictures):
    _, page = write(fit, tmp_path)
    assert "the data was not passed to the report" in page.text


def test_one_restart_and_long_lists(tmp_path, no_pictures):
    _, page = write(fake_fit(n_restarts=1, n_features=70, n_factors=2, n_active=2), tmp_path)
    assert "One restart only" in page.text
    assert "and 27 more on" not in page.text and "of 70 features" in page.text


@pytest.mark.slow
def test_it_leaves_no_figure_behind(fit, tmp_path):
    import matplotlib.pyplot as plt

    before, settings = plt.get_fignums(), dict(matplotlib.rcParams)
    _, page = write(fit, tmp_path)
    assert len([tag for tag, _ in page.tags if tag == "img"]) == 6
    assert plt.get_fignums() == before
    assert dict(matplotlib.rcParams) == settings


def test_messages(fit, tmp_path, monkeypatch):
    with pytest.raises(
        ValueError, match=r"path: got .*r.pdf', and the report is a page of HTML; .*r.html'.*PDF"
    ):
        report(fit, tmp_path / "r.pdf")
    with pytest.raises(TypeError, match=r"fit: got the path 'r.html'; the fit comes first: report\(fit, 'r"):
        report("r.html", fit)
    with pytest.raises(TypeError, match=r"path: want a file to write, .* got a FakeFit"):
        report(fit, fit)
    assert not list(tmp_path.iterdir())
    with pytest.raises(IsADirectoryError, match=r"path: .* is a folder; give .*report.html"):
        report(fit, tmp_path)
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ImportError, match=r'the report needs jinja2.*pip install "pyro-sparse\[plots,cli\]"'):
        report(fit, tmp_path / "report.html")


def probable(fit):
    """The fit's scores taken for probabilities: an edge posterior that has a certificate."""
    from pyro_sparse.posterior.tables import to_arviz

    p = np.where(fit.edge_score > 0.5, fit.edge_score, 0.001)
    p[:, :, 3:] = 0.0
    edge = (np.random.default_rng(0).random((len(p), 40, *p.shape[1:])) < p[:, None]).astype(np.int8)
    return to_arviz(
        fit,
        edge=edge,
        weight=np.broadcast_to(fit.weights[:, None], edge.shape),
        probability=p[0],
        restart_probability=p,
        method="mcmc",
        is_score=False,
        note="",
    )


@pytest.mark.slow
def test_the_certificate_is_on_the_page(fit, tmp_path):
    import pyro_sparse as ps

    idata = probable(fit)
    certificate = ps.identify(fit, idata=idata)
    _, page = write(fit, tmp_path, idata=idata, groups={"first <half>": fit.feature_names[:6]})
    text = page.text.replace(" ", "")
    for name, row in certificate.table.iterrows():
        line = f"{name}{row['verdict']}{row['probability']:.2f}{row['by'] or '–'}"
        assert line.replace(" ", "") in text
    for name, row in certificate.assumptions.iterrows():
        assert name in page.text and row["figure"] in page.text
    assert "every rotation fits the rows equally well" in page.text
    assert page.text.count("One restart <failed>") == 1  # told once
    assert "exactly these groups depend on" in page.text


def test_edges_of_another_fit_are_refused(fit, tmp_path):
    import pyro_sparse as ps

    other = probable(fake_fit(feature_names=fit.feature_names[::-1]))
    with pytest.raises(ValueError, match="idata: it is of another fit, its features are not this one's"):
        ps.report(fit, tmp_path / "report.html", idata=other)
    assert not (tmp_path / "report.html").exists()


def test_sure_edges_and_sure_absences_are_counted_as_the_edge_posterior_counts_them(
    fit, tmp_path, no_pictures
):
    idata = probable(fit)
    _, page = write(fit, tmp_path, idata=idata)
    said = ps.summary(idata)["verdict"].value_counts()
    (line,) = [line for line in idata.attrs["verdict"].splitlines() if "decided" in line]
    assert (
        line in page.text and f"({said['present']} present" in line
    )  # absent ones of factor 4 were not asked
    assert said["open"] == 1 and "1 of the selected edges is open: item 1 on factor 1" in page.text
    assert "12 edges were not examined (those of factor 4): nothing is known of them." in page.text


def test_all_that_is_open_is_listed(fit, tmp_path, no_pictures):
    idata = probable(fit)
    group = get_group(idata, "edge_posterior")
    group["gap"].values[:] = 0.0
    group["probability"].values[:, 3] = 0.07  # between what counts as absent and one tenth
    facts = gather(fit, idata, 0.1)
    assert any("12 edges not selected, but not ruled out: " in line for line in facts["open"])
    listed = rows_of(facts, selected=False)
    assert {row["Factor"].text for row in listed} == {"factor 4"} and len(listed) == 12
    absent = (ps.summary(idata)["verdict"] == "absent").sum()
    assert facts["edges"]["about"].endswith(f"{absent} with a probability of at most .05 are not listed.")


def test_a_strict_rate_hides_no_edge_that_is_present(fit, tmp_path, no_pictures):
    idata = probable(fit)
    facts = gather(fit, idata, 0.0)
    present = ps.summary(idata)
    present = present[present["verdict"] == "present"]
    assert facts["n_edges"] < len(present)
    shown = [(row["head"].text, row["group"]) for row in facts["edges"]["rows"]]
    assert set(zip(present["feature"], present["factor"], strict=True)) <= set(shown)


def test_a_long_table_is_cut_and_says_so(fit, tmp_path, no_pictures, monkeypatch):
    monkeypatch.setattr("pyro_sparse.pages.edges._MOST_ROWS", 5)
    facts = gather(fit, fit.edge_posterior(num_draws=2), 0.1)
    assert len(facts["edges"]["rows"]) == 5 and "The first 5 of 15" in facts["edges"]["about"]


def test_edges_that_were_given_are_said_to_be(fit, tmp_path, no_pictures):
    idata = probable(fit)
    group = arviz_files.get_group(idata, "edge_posterior")
    assert not group["given"].any()
    group["given"].values[:2, 0] = 1
    _, page = write(fit, tmp_path, idata=idata)
    assert "2 edges were given to the model." in page.text
    assert "Edges that were given to the model are selected and do not count." in page.text


DOUBT = Finding("restarts", "no other restart found factor 2", "anchor it", "doubt", factors=("factor 2",))
NOTES = [
    Finding("columns", "a column is long", "standardise", source="data"),
    Finding("columns", "another one is, too", "standardise", source="data"),
    Finding("training", "the fit was short"),
]


def test_cautions_stand_in_one_place_each_with_its_remedy(tmp_path, no_pictures):
    fit = fake_fit(findings=[*NOTES, DOUBT])
    idata = probable(fit)
    text, page = write(fit, tmp_path, idata=idata)
    for finding in (*NOTES, DOUBT):
        assert page.text.lower().count(finding.message) == 1
    facts = gather(fit, idata, 0.1)
    first, second, third = facts["cautions"][:3]
    assert first == {
        "messages": ["No other restart found factor 2."],
        "remedy": "anchor it",
        "is_doubt": True,
    }
    assert (len(second["messages"]), second["remedy"]) == (2, "standardise")
    assert (third["messages"], third["remedy"]) == (["The fit was short."], "")
    said = [m for caution in facts["cautions"] for m in caution["messages"]]
    assert set(ps.identify(fit, idata=idata).caution) - {str(f) for f in fit.findings} <= {
        m.rstrip(".")[0].lower() + m.rstrip(".")[1:] for m in said
    }
    assert len(said) == len(set(said)) and page.text.count("What would help: standardise.") == 1


def test_no_part_of_a_page_calls_sure_what_another_doubts(no_pictures):
    fit = fake_fit(findings=[DOUBT])
    facts = gather(fit, probable(fit), 0.1)
    assert facts["verdict"]["level"] == "mixed" and "doubt" in facts["verdict"]["title"]
    assert not [line for line in facts["known"] if "factor 2" in line]
    assert not [row for row in rows_of(facts) if row["Factor"].text == "factor 2"]
    (open_all_the_same,) = [line for line in facts["open"] if ".95 or more" in line]
    assert open_all_the_same.count(" on factor 2 ") == (fit.edge_score[0, :, 1] > 0.95).sum()
    whole = fake_fit(findings=[Finding("model", "all of it is wrong", severity="doubt")])
    facts = gather(whole, probable(whole), 0.1)
    assert (facts["verdict"]["level"], facts["verdict"]["title"]) == ("poor", "Every edge is in doubt")
    assert facts["n_edges"] == 0 and "No edge is selected" in facts["known"][0]


def test_remedies_of_the_verdict_give_way_to_those_of_the_cautions(no_pictures):
    def advice(findings):
        fit = fake_fit(findings=findings)
        rng = np.random.default_rng(0)
        fit.weights[1:] = rng.normal(size=fit.weights[1:].shape)
        return gather(fit, fit.edge_posterior(num_draws=2), 0.1)["verdict"]["advice"]

    assert "anchors" in advice([]) and "anchors" not in advice([DOUBT])


@pytest.mark.slow
def test_what_is_compared_are_chains_or_restarts(fit, written, tmp_path):
    _, page = write(fit, tmp_path, idata=probable(fit))
    for said in (
        "question mark means that the chains disagree",
        "Filled dots: the mean over the chains. Small upright marks: each chain alone. Dotted",
        "between the chains. Above .25",
        "unresolved: the chains disagree about it",
    ):
        assert said in page.text
    assert "good restarts" not in page.text and "Used for the gap" not in page.text
    _, page = written
    for said in (
        "question mark means that good restarts disagree",
        "Filled dots: the best restart. Small upright marks: the other good restarts. Hollow",
        "between good restarts. Above .25",
        "Used for the gap",
    ):
        assert said in page.text
    assert "chains disagree" not in page.text


def loadings_of_any_size(fit):
    """Edges that are all there, with draws of how large: item 1 has a small loading, of item 4 half are."""
    idata = probable(fit)
    weight = np.broadcast_to(fit.weights[:1, None], idata["posterior"]["weight"].shape).copy()
    weight[:, :, 0], weight[:, ::2, 3] = 0.2 * np.sign(weight[:, :, 0]), 0.25 * np.sign(weight[:, ::2, 3])
    idata["posterior"]["weight"].values = weight
    return idata


def test_salient_edges_are_those_that_are_surely_large(fit, tmp_path, no_pictures):
    idata = loadings_of_any_size(fit)
    _, page = write(fit, tmp_path, idata=idata)
    table = ps.summary(idata, selected_only=True)
    n = int((table["p_salient_0.3"] >= 0.95).sum())
    assert n == len(table) - 2
    assert f"{n} of the {len(table)} selected edges are salient: the loading is at least 0.3" in page.text
    assert "Loading ≥ 0.3" in page.text and "at least 0.3 (9 % of the variance)" in page.text
    _, page = write(fit, tmp_path, idata=idata, salient=0.1)
    assert "Loading ≥ 0.1" in page.text and "at least 0.1 (1 % of the variance)" in page.text


def test_the_loading_of_a_curve_that_goes_both_ways_has_no_sign(fit, tmp_path, no_pictures):
    idata = loadings_of_any_size(fit)
    idata["posterior"]["weight"].values[:, ::2, 3] *= -1
    edge = ps.summary(idata).loc["item 4 -> factor 1"]
    assert edge["verdict"] == "present" and edge["hdi90_lb"] < 0 < edge["hdi90_ub"]
    _, page = write(fit, tmp_path, idata=idata)
    assert f"± {edge['effect'] ** 0.5:.2f}" in page.text and "or ± where it goes both ways" in page.text
    assert page.text.count("± ") == 2  # of the explanation as well


def test_a_page_of_salient_edges_only(fit, tmp_path, no_pictures):
    idata = loadings_of_any_size(fit)
    _, page = write(fit, tmp_path, idata=idata, salient=0.3, salient_only=True)
    table = ps.summary(ps.salient_edges(idata, 0.3), selected_only=True)
    assert f"{len(table)} edges between" in page.text and len(table) < len(
        ps.summary(idata, selected_only=True)
    )
    assert "An edge is here a loading of at least 0.3 in size." in page.text
    assert "Posterior probability that a standardised loading is at least 0.3" in page.text
    assert "Loading ≥" not in page.text and "Loading (90 % HDI)" in page.text
    assert "What is identified" in page.text and "No certificate" not in page.text  # of zeros, all the same


def test_a_page_of_strengths_counts_no_salient_edges(tmp_path, no_pictures):
    fit = fit_with_strengths()
    _, page = write(fit, tmp_path, idata=fit.edge_posterior("jacobian", num_draws=5))
    assert (
        "salient" not in page.text and "Loading" not in page.text and "restarts agree on edges" in page.text
    )


def test_an_edge_posterior_of_restarts_says_what_it_comes_to(tmp_path, no_pictures):
    fit = fit_with_strengths()
    idata = fit.edge_posterior("jacobian", num_draws=5)
    assert int((get_group(idata, "edge_posterior")["gap"] > 0.25).sum()) == 1
    assert "\n1 edge is disputed between the restarts" in idata.attrs["verdict"]
    _, page = write(fit, tmp_path, idata=idata)
    assert re.search(r"\d+ of 48 edges decided", page.text)
    assert "1 edge is disputed between the restarts" in page.text
    alone = fit_with_strengths(n_restarts=1).edge_posterior("jacobian", num_draws=5)
    assert "\nThere is only one restart to look at" in alone.attrs["verdict"]
    score = fake_fit().edge_posterior("score", num_draws=5).attrs["verdict"].splitlines()
    assert score[0].startswith("Scores, no probabilities") and score[1].startswith("1 edge is disputed")


def test_chains_stand_for_other_restarts_that_are_missing(tmp_path, no_pictures):
    alone = fake_fit(n_restarts=1)
    _, page = write(alone, tmp_path, idata=probable(alone))
    assert "One restart only, so the chains alone say how sure it is" in page.text


@pytest.mark.parametrize("kind", ["linear", "mlp"])
def test_an_edge_that_only_the_chains_have_is_no_flat_one(tmp_path, no_pictures, kind):
    fit = fake_fit()
    idata = probable(fake_fit())  # of a fit of its own, whose arrays it shares
    edges = idata["edge_posterior"]
    j, k = 1, 2
    assert fit.weights[0, j, k] == 0
    edges["weight"][j, k], edges["effect"][j, k], edges["probability"][j, k] = -0.3, 0.09, 1.0
    fit.model = SimpleNamespace(decoder_kind=kind)
    facts = gather(fit, idata, 0.1)
    own = next(f for f in facts["factors"] if f["name"] == "factor 3")
    (row,) = [r for r in rows_of(facts) if (r["Feature"].text, r["Factor"].text) == ("item 2", "factor 3")]
    curve = row["As the factor goes up"]
    assert row["Share of variance"].sort == 0.09
    assert own["share"] == pytest.approx(edges["effect"].to_numpy()[:, k].mean())
    _, page = write(fit, tmp_path, idata=idata)
    if kind == "linear":
        heights = [float(point.split(",")[1]) for point in curve.points.split()]
        other = abs(fit.weights[0, j, 1])  # the feature's own edge, which spans the box's 14 points
        assert curve.text == "falls"
        assert heights[-1] - heights[0] == pytest.approx(14 * 0.3 / other, abs=0.1)
        assert "Not in the fit" not in page.text
    else:
        assert (curve.text, curve.points) == ("not in the fit", "")
        assert "item 2 is different, but the fit has no curve of it" in page.text
        assert "Not in the fit" in page.text


def test_scores_have_no_certificate(written):
    _, page = written
    assert "No certificate: the numbers of the edges are scores" in page.text


@pytest.mark.slow
def test_effects_of_covariates_are_on_the_page(tmp_path):
    rng = np.random.default_rng(0)
    site = rng.choice(["north", "south"], 120)
    x = rng.normal(size=(120, 1)) + 0.5 * rng.normal(size=(120, 5))
    x[:, 0] += 2.0 * (site == "north")
    table = pd.DataFrame(x, columns=list("abcde")).assign(site=site)
    model = ps.models.SparseDecoder(n_factors=1, decoder="linear")
    fit = ps.fit(model, table, groups="site", restarts=1, seed=0, progress=False)
    page = ps.report(fit, tmp_path / "page.html", idata=fit.edge_posterior()).read_text()
    section = page[page.index('id="covariates"') : page.index('id="restarts"')]
    assert "site = north" in section and "1 of 5" in section.replace("&nbsp;", " ")
    assert "built-in" not in section and re.search(r"a 0\.9\d? <span", section)


@pytest.mark.parametrize(
    "shape, decoder, shows",
    [((200, 8), "linear", True), ((200, 8), "mlp", False), ((50, 101), "linear", False),
     ((30_001, 10), "linear", False), ((1, 8), "linear", False)],
)  # fmt: skip
def test_eigenvalues_are_shown_where_they_are_of_the_factors_and_quick(shape, decoder, shows):
    fit = SimpleNamespace(settings={"decoder": decoder}, table=SimpleNamespace(x=np.empty(shape)))
    assert _shows_numbers(fit) is shows
