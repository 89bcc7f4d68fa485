"""Loaders against tiny files written here: from a path, and over loopback with a checksum."""

from __future__ import annotations

import builtins
import functools
import hashlib
import http.server
import json
import sys
import threading
import zipfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from pyro_sparse.datasets import (
    holzinger,
    load_bfi,
    load_cortex_counts,
    load_embedded,
    load_movielens,
    load_pbmc,
    load_peerread,
    load_zeisel,
)
from pyro_sparse.datasets._names import unique_names
from pyro_sparse.datasets.cells import counts_from_logs, most_variable, quantile_normalise

ITEMS = [f"{scale}{i}" for scale in "ACENO" for i in range(1, 6)]
BFI = Path(__file__).parents[3] / "shared" / "data"


@pytest.fixture
def served(tmp_path):
    """A folder served on 127.0.0.1; yields (folder, base url)."""
    folder = tmp_path / "served"
    folder.mkdir()

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder))
    )
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield folder, f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()
    thread.join()


def sha256(file):
    return "sha256:" + hashlib.sha256(file.read_bytes()).hexdigest()


def write_bfi(file, rows=6):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.integers(1, 7, (rows, 25)).astype(float), columns=ITEMS)
    frame.iloc[1, 3] = np.nan
    frame.insert(0, "rownames", range(100, 100 + rows))
    frame["age"] = 20 + np.arange(rows)
    frame.to_csv(file, index=False)
    return frame


def test_bfi_from_path(tmp_path):
    frame = write_bfi(tmp_path / "bfi.csv")
    table = load_bfi(tmp_path / "bfi.csv")
    np.testing.assert_array_equal(table.x.to_numpy(), frame[ITEMS].to_numpy())
    assert table.x.index.tolist() == list(range(100, 106)) and table.rows["age"].tolist() == list(
        range(20, 26)
    )
    assert table.feature_names == ITEMS
    assert table.features.loc["E2"].tolist() == ["extraversion", -1]
    assert table.features.groupby("scale").size().tolist() == [5] * 5


def test_bfi_download_checks_the_sum(served, tmp_path):
    folder, base = served
    write_bfi(folder / "bfi.csv")
    arguments = {"url": f"{base}/bfi.csv", "cache": tmp_path / "cache"}
    table = load_bfi(known_hash=sha256(folder / "bfi.csv"), **arguments)
    assert table.x.shape == (6, 25) and np.isnan(table.x.iloc[1, 3])
    (folder / "bfi.csv").unlink()
    again = load_bfi(
        known_hash=sha256(next((tmp_path / "cache").iterdir())), **arguments
    )  # served from the cache
    pd.testing.assert_frame_equal(again.x, table.x)


def test_wrong_sum_is_refused(served, tmp_path):
    folder, base = served
    write_bfi(folder / "bfi.csv")
    with pytest.raises(ValueError, match="hash"):
        load_bfi(url=f"{base}/bfi.csv", known_hash="sha256:" + "0" * 64, cache=tmp_path / "cache")


def test_nothing_is_fetched_without_a_sum():
    with pytest.raises(ValueError, match="no checksum is known"):
        load_bfi(url="http://127.0.0.1:9/bfi.csv")
    with pytest.raises(ValueError, match="Zeisel would be fetched"):
        load_zeisel()


def test_missing_path_and_columns(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere\.csv"):
        load_bfi(tmp_path / "nowhere.csv")
    write_bfi(tmp_path / "bfi.csv").drop(columns="O3").to_csv(tmp_path / "short.csv", index=False)
    with pytest.raises(ValueError, match="O3"):
        load_bfi(tmp_path / "short.csv")
    write_bfi(tmp_path / "bfi.csv").replace({"C2": {1: 9, 2: 9, 3: 9}}).to_csv(
        tmp_path / "odd.csv", index=False
    )
    with pytest.raises(ValueError, match=r"odd\.csv: want answers from 1 to 6, got 9 to C2 in row 10"):
        load_bfi(tmp_path / "odd.csv")


def test_without_pooch_the_extra_is_named(monkeypatch, tmp_path):
    real = builtins.__import__

    def absent(name, *args, **kwargs):
        if name == "pooch":
            raise ImportError("no pooch")
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(ImportError, match=r"pyro-sparse\[data\]"):
        load_bfi(url="http://127.0.0.1:9/x", known_hash="sha256:0", cache=tmp_path)


@pytest.mark.skipif(not (BFI / "bfi.csv").exists(), reason="../shared/data/bfi.csv is absent")
def test_bfi_real_table_and_key():
    table = load_bfi(BFI / "bfi.csv")
    assert table.x.shape == (2800, 25) and int(table.x.isna().sum().sum()) == 508
    assert list(table.rows) == ["gender", "education", "age"]
    keys = pd.read_csv(BFI / "bfi_keys.csv", index_col=0).map(str)
    for scale, column in keys.items():
        for key in column:
            assert table.features.loc[key.lstrip("-")].tolist() == [
                {"agree": "agreeableness", "conscientious": "conscientiousness"}.get(scale, scale),
                -1 if key.startswith("-") else 1,
            ]


def test_holzinger():
    """Means as they are published with lavaan (intercepts of its mean structure)."""
    table = holzinger()
    assert table.x.shape == (301, 9) and table.feature_names == [f"x{j}" for j in range(1, 10)]
    means = [4.936, 6.088, 2.250, 3.061, 4.341, 2.186, 4.186, 5.527, 5.374]
    np.testing.assert_allclose(table.x.mean(), means, atol=5e-4)
    within = np.corrcoef(table.x.T)
    assert min(within[3, 4], within[3, 5], within[4, 5]) > 0.7  # of verbal tests
    assert table.features.groupby("scale").size().to_dict() == {"speed": 3, "verbal": 3, "visual": 3}
    assert table.features["test"].is_unique


def test_embedded():
    table = load_embedded()
    assert table.x.shape == (569, 30) and table.rows["target"].value_counts().to_dict() == {
        "benign": 357,
        "malignant": 212,
    }
    assert (table.features.groupby("group").size() == 3).all() and table.features["group"].nunique() == 10
    assert (load_embedded("digits").x.nunique() > 1).all()
    with pytest.raises(ValueError, match="name='boston'"):
        load_embedded("boston")


@pytest.fixture
def films(tmp_path):
    """Twelve users, nine films; user u rates film m with 5 when m <= u % 9, else 3 (not a like)."""
    rows = [(u, m, 5.0 if m <= u % 9 else 3.0, 0) for u in range(12) for m in range(9)]
    folder = tmp_path / "ml-25m"
    folder.mkdir()
    pd.DataFrame(rows, columns=["userId", "movieId", "rating", "timestamp"]).to_csv(
        folder / "ratings.csv", index=False
    )
    movies = pd.DataFrame(
        {"movieId": range(9), "title": ["same"] * 2 + [f"film {m}" for m in range(2, 9)], "genres": "x"}
    )
    movies.to_csv(folder / "movies.csv", index=False)
    return folder


def test_movielens_filters(films):
    table = load_movielens(films, n_movies=4, n_users=None, min_liked=3)
    liked = {u: set(range(u % 9 + 1)) for u in range(12) if u % 9 + 1 >= 3}
    expected = np.array(
        [[float(m in liked[u]) for m in range(4)] for u in liked]
    )  # films 0-3 are the most liked
    np.testing.assert_array_equal(table.x.toarray(), expected)
    assert table.rows["userId"].tolist() == list(liked)
    assert table.feature_names == ["same", "same (2)", "film 2", "film 3"]
    assert table.features["movieId"].tolist() == [0, 1, 2, 3]
    few = load_movielens(films, n_movies=4, n_users=3, min_liked=3, seed=1)
    assert few.x.shape == (3, 4) and set(few.rows["userId"]) <= set(liked)
    with pytest.raises(ValueError, match="min_liked=20"):
        load_movielens(films)


def test_movielens_films_without_a_title_and_other_sources(films, tmp_path):
    movies = pd.read_csv(films / "movies.csv")
    movies.loc[[0, 1, 3], "title"] = ["film 2", None, "film 2 (2)"]
    movies.to_csv(films / "movies.csv", index=False)
    table = load_movielens(films, n_movies=4, min_liked=3)
    assert table.feature_names == ["film 2", "film 1", "film 2 (2)", "film 2 (2) (2)"]
    pd.concat([movies, movies.iloc[[3]]]).to_csv(films / "movies.csv", index=False)
    with pytest.raises(ValueError, match="movies.csv: want every film once, got movieId 3 more than once"):
        load_movielens(films, n_movies=4, min_liked=3)
    (tmp_path / "half.zip").write_bytes(b"PK\x03\x04")
    with pytest.raises(ValueError, match=r"half\.zip is no zip archive"):
        load_movielens(tmp_path / "half.zip")


def test_names_are_told_apart():
    assert unique_names(["a", "a (2)", "a", "a"]) == ["a", "a (2)", "a (3)", "a (4)"]


def test_movielens_archive(films, served, tmp_path):
    folder, base = served
    with zipfile.ZipFile(folder / "ml-25m.zip", "w") as archive:
        for name in ("ratings.csv", "movies.csv"):
            archive.write(films / name, f"ml-25m/{name}")
    small = {"n_movies": 4, "min_liked": 3}
    expected = load_movielens(films, **small)
    local = load_movielens(folder / "ml-25m.zip", **small)
    fetched = load_movielens(
        url=f"{base}/ml-25m.zip", known_hash=sha256(folder / "ml-25m.zip"), cache=tmp_path / "cache", **small
    )
    for table in (local, fetched):
        np.testing.assert_array_equal(table.x.toarray(), expected.x.toarray())
    with zipfile.ZipFile(folder / "bad.zip", "w") as archive:
        archive.write(films / "movies.csv", "ml-25m/movies.csv")
    with pytest.raises(ValueError, match="ratings"):
        load_movielens(folder / "bad.zip", **small)


@pytest.fixture
def films_of_1998(films):
    """The same ratings and films in the form of MovieLens-100k."""
    from pyro_sparse.datasets.movielens import GENRES

    folder = films.parent / "ml-100k"
    folder.mkdir()
    ratings = pd.read_csv(films / "ratings.csv").astype({"rating": int})
    ratings.to_csv(folder / "u.data", sep="\t", header=False, index=False)
    for name, half in (("base", ratings[::2]), ("test", ratings[1::2])):
        half.to_csv(folder / f"u1.{name}", sep="\t", header=False, index=False)
    with (folder / "u.item").open("w", encoding="latin-1") as lines:
        for film, title in enumerate(pd.read_csv(films / "movies.csv")["title"]):
            has = [int(genre in ("Crime", "Drama") and film == 3) for genre in GENRES]
            title = 'Les "Misérables" (1995)' if film == 3 else title
            lines.write("|".join([str(film), title, "01-Jan-1995", "", "address", *map(str, has)]) + "\n")
    return folder


def test_movielens_of_1998(films, films_of_1998, tmp_path):
    small = {"n_movies": 4, "min_liked": 3}
    expected = load_movielens(films, **small)
    table = load_movielens(films_of_1998, **small)
    np.testing.assert_array_equal(table.x.toarray(), expected.x.toarray())
    assert table.rows["userId"].tolist() == expected.rows["userId"].tolist()
    assert table.feature_names == ["same", "same (2)", "film 2", 'Les "Misérables" (1995)']
    assert table.features["genres"].tolist() == ["", "", "", "Crime|Drama"]
    with zipfile.ZipFile(tmp_path / "ml-100k.zip", "w") as archive:
        for name in ("u.data", "u.item"):
            archive.write(films_of_1998 / name, f"ml-100k/{name}")
    archived = load_movielens(tmp_path / "ml-100k.zip", **small)
    np.testing.assert_array_equal(archived.x.toarray(), expected.x.toarray())
    (films_of_1998 / "u.data").unlink()
    split = load_movielens(films_of_1998, **small)
    np.testing.assert_array_equal(split.x.toarray(), expected.x.toarray())
    (films_of_1998 / "u1.test").unlink()
    with pytest.raises(ValueError, match=r"has u.item, but lacks \['u1.test'\]; want u.data"):
        load_movielens(films_of_1998, **small)


def test_films_of_1998_with_other_columns_are_refused(films_of_1998):
    (films_of_1998 / "u.item").write_text("1|a film|01-Jan-1995||address|0|1\n")
    with pytest.raises(ValueError, match=r"u\.item: want 24 columns .* got 7"):
        load_movielens(films_of_1998, min_liked=3)


ABSTRACTS = [
    "the neural network learns a network",
    "a sparse network",
    "sparse factors explain counts, counts",
    "factors",
    "neural counts of the 2nd kind",
]


def test_peerread_counts_by_hand(tmp_path):
    pd.DataFrame({"abstract_text": ABSTRACTS}).to_csv(tmp_path / "papers.csv", index=False)
    table = load_peerread(tmp_path / "papers.csv", n_words=None, min_df=2)
    assert table.feature_names == ["counts", "factors", "network", "neural", "sparse"]
    assert load_peerread(tmp_path / "papers.csv", n_words=2, min_df=2).feature_names == ["counts", "network"]
    for row, document in enumerate(table.rows["document"]):
        words = ABSTRACTS[document].replace(",", "").split()
        np.testing.assert_array_equal(table.x.toarray()[row], [words.count(w) for w in table.feature_names])
    assert 3 not in set(table.rows["document"])  # one word only
    folder = tmp_path / "PeerRead" / "data" / "acl" / "train" / "parsed_pdfs"
    folder.mkdir(parents=True)
    for i, text in enumerate([*ABSTRACTS, None]):
        (folder / f"{i}.pdf.json").write_text(json.dumps({"metadata": {"abstractText": text}}))
    same = load_peerread(tmp_path / "PeerRead", n_words=None, min_df=2)
    for i, other in enumerate(({"metadata": None}, [], {})):
        (folder / f"other{i}.pdf.json").write_text(json.dumps(other))
    same = load_peerread(tmp_path / "PeerRead", n_words=None, min_df=2)
    np.testing.assert_array_equal(same.x.toarray(), table.x.toarray())
    (folder / "broken.pdf.json").write_text('{"metadata": ')
    with pytest.raises(ValueError, match=r"broken\.pdf\.json is no JSON"):
        load_peerread(tmp_path / "PeerRead")


def test_peerread_own_tokenizer_and_refusals(tmp_path):
    pd.DataFrame({"abstract_text": ABSTRACTS}).to_csv(tmp_path / "papers.csv", index=False)
    table = load_peerread(
        tmp_path / "papers.csv", min_df=1, tokenizer=lambda text: [w.rstrip("s,") for w in text.split()]
    )
    assert "factor" in table.feature_names and "the" not in table.feature_names
    with pytest.raises(ValueError, match="text_column='abstract'"):
        load_peerread(tmp_path / "papers.csv", text_column="abstract")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="no abstracts"):
        load_peerread(tmp_path / "empty")


@pytest.fixture
def cortex(tmp_path):
    """40 cells, 30 genes in the published layout: two blocks of 8 genes move together, the rest are noise."""
    rng = np.random.default_rng(0)
    cells, genes = 40, 30
    level = rng.gamma(2.0, 10.0, (cells, 2))
    rate = np.full((cells, genes), 5.0)
    rate[:, :8], rate[:, 8:16] = level[:, :1], level[:, 1:]
    counts = rng.poisson(rate)
    counts[:, -1] = 0
    names = [
        "tissue",
        "group #",
        "total",
        "well",
        "sex",
        "age",
        "diameter",
        "cell_id",
        "level1class",
        "level2class",
    ]
    lines = []
    for name in names:
        values = [f"c{i}" if name == "cell_id" else f"{name}{i % 3}" for i in range(cells)]
        lines.append("\t".join(["", name, *values]))
    lines.append("\t".join([""] * (cells + 2)))
    for j in range(genes):
        lines.append("\t".join([f"gene{j}", "1", *map(str, counts[:, j])]))
    file = tmp_path / "expression.txt"
    file.write_text("\n".join(lines) + "\n")
    return file, counts


def test_zeisel_reads_and_filters(cortex):
    file, counts = cortex
    table = load_zeisel(file, n_genes=6, n_variable=10, neighbour_correlation=0.6, normalise=False)
    assert table.x.shape == (40, 6) and table.x.index.tolist()[:2] == ["c0", "c1"]
    assert table.rows["level1class"].iloc[4] == "level1class1"
    correlation = np.corrcoef(counts[:, :-1].T)
    neighbours = (correlation > 0.6).sum(1) - 1
    allowed = {f"gene{j}" for j in np.flatnonzero(neighbours >= 5)}
    assert set(table.feature_names) <= allowed and len(allowed) == 16
    for name in table.feature_names:
        np.testing.assert_array_equal(table.x[name], counts[:, int(name[4:])])
    normal = load_zeisel(file, n_genes=16, n_variable=16, neighbour_correlation=0.6)
    order = [int(g[4:]) for g in normal.feature_names]
    np.testing.assert_allclose(normal.x.to_numpy(), quantile_normalise(counts[:, order]))
    top = load_zeisel(file, n_genes=3, n_variable=16, neighbour_correlation=0.6)
    assert set(top.feature_names) == set(normal.x.std(ddof=0).nlargest(3).index)
    with pytest.raises(ValueError, match="min_neighbours"):
        load_zeisel(file, min_neighbours=99)
    with pytest.raises(ValueError, match="min_molecules"):
        load_zeisel(file, min_molecules=10**9)


def test_zeisel_other_layouts_are_refused(cortex):
    file, _ = cortex
    lines = file.read_text().splitlines()
    for other in (lines[:10] + lines[11:], lines[2:], lines[:2]):
        file.write_text("\n".join(other) + "\n")
        with pytest.raises(ValueError, match="want ten lines of annotations of cells, then a blank one"):
            load_zeisel(file)


def test_quantile_normalise_by_hand():
    x = np.array([[5.0, 2.0, 3.0, 4.0], [4.0, 1.0, 4.0, 2.0], [3.0, 4.0, 6.0, 8.0]])
    reference = np.array([2.0, 3.0, 14 / 3, 17 / 3])  # means of the sorted rows
    tie = (reference[2] + reference[3]) / 2
    expected = [reference[[3, 0, 1, 2]], [tie, reference[0], tie, reference[1]], reference]
    np.testing.assert_allclose(quantile_normalise(x), expected)


def counts_of_cells():
    """Six cells of five genes; every cell has a count of 1, and the fourth gene none."""
    counts = np.random.default_rng(1).poisson([[3.0, 0.5, 8.0, 0.0, 30.0]], (6, 5)).astype(float)
    counts[:, 1] = 1
    return counts


def test_counts_come_back_from_rounded_logs():
    counts = counts_of_cells()
    multiplier = np.linspace(2.0, 9.0, 6)[:, None]
    logs = np.round(np.log1p(counts * multiplier), 3)  # as the file of PBMC rounds them
    np.testing.assert_array_equal(counts_from_logs(logs), counts)
    with pytest.raises(ValueError, match=r"row 2, column 0 gives c = "):
        broken = logs.copy()
        broken[2, 0] = np.log1p(2.5 * multiplier[2, 0])
        counts_from_logs(broken)
    with pytest.raises(ValueError, match="row 1 is empty"):
        counts_from_logs(np.where(np.arange(6)[:, None] == 1, 0.0, logs))
    with pytest.raises(ValueError, match="none below 0"):
        counts_from_logs(logs - 1)


def test_the_most_variable_genes_do_not_follow_depth():
    rng = np.random.default_rng(0)
    depth = rng.gamma(4.0, 1.0, (200, 1))
    rate = np.tile([40.0, 40.0, 40.0, 4.0], (200, 1))
    rate[:100, 3] = 40.0
    counts = rng.poisson(depth * rate)
    assert most_variable(counts, 1).tolist() == [3] and most_variable(counts, 9).tolist() == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="n_genes=0"):
        most_variable(counts, 0)


def test_pbmc(tmp_path):
    anndata = pytest.importorskip("anndata")
    counts = counts_of_cells()
    logs = np.round(np.log1p(counts * np.linspace(2.0, 9.0, 6)[:, None]), 3)
    genes, labels = ["a", "b", "c", "none", "d"], ["B", "T", "B", "T", "NK", "B"]
    obs = pd.DataFrame({"bulk_labels": labels}, index=[f"cell{i}" for i in range(6)])
    cells = anndata.AnnData(logs, obs=obs, var=pd.DataFrame(index=[f"gene{j}" for j in range(5)]))
    cells.raw = anndata.AnnData(logs, obs=obs, var=pd.DataFrame(index=genes))
    cells.write_h5ad(tmp_path / "cells.h5ad")
    table = load_pbmc(tmp_path / "cells.h5ad")
    np.testing.assert_array_equal(table.x.to_numpy(), counts[:, [0, 1, 2, 4]])
    assert table.feature_names == list(table.x) == ["a", "b", "c", "d"]
    assert table.rows["label"].tolist() == labels and table.x.index.tolist() == list(obs.index)
    kept = load_pbmc(tmp_path / "cells.h5ad", n_genes=2).x
    assert list(kept) == [table.feature_names[j] for j in most_variable(counts[:, [0, 1, 2, 4]], 2)]
    del cells.raw
    cells.write_h5ad(tmp_path / "none.h5ad")
    with pytest.raises(ValueError, match=r"none\.h5ad: want \.raw"):
        load_pbmc(tmp_path / "none.h5ad")


def test_cortex_counts(tmp_path, monkeypatch):
    counts, labels = counts_of_cells(), list("ababab")
    cells, genes = [f"cell{i}" for i in range(6)], [f"gene{j}" for j in range(5)]
    frame = pd.DataFrame(counts.astype(int), index=cells, columns=genes)
    frame.assign(label=labels).to_csv(tmp_path / "cells.csv")
    table = load_cortex_counts(tmp_path / "cells.csv")
    np.testing.assert_array_equal(table.x.to_numpy(), counts[:, [0, 1, 2, 4]])
    assert table.rows["label"].tolist() == labels and table.x.index.tolist() == cells
    for change, message in (
        ({"gene0": 0.5}, "whole numbers"),
        ({"gene0": -1}, "whole numbers"),
        ({"gene0": "many"}, "text in"),
    ):
        frame.assign(label=labels, **change).to_csv(tmp_path / "odd.csv")
        with pytest.raises(ValueError, match=message):
            load_cortex_counts(tmp_path / "odd.csv")
    frame.to_csv(tmp_path / "unlabelled.csv")
    with pytest.raises(ValueError, match="want a column 'label'"):
        load_cortex_counts(tmp_path / "unlabelled.csv")
    (tmp_path / "zeisel.rda").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "rdata", None)
    with pytest.raises(ImportError, match="pip install rdata"):
        load_cortex_counts(tmp_path / "zeisel.rda")


def test_cortex_counts_of_r(tmp_path):
    import xarray  # ArviZ needs it, too

    counts, labels = counts_of_cells(), np.array(list("ababab"))
    cells, genes = [f"cell{i}" for i in range(6)], [f"gene{j}" for j in range(5)]
    matrix = xarray.DataArray(counts.T, dims=["dim_0", "dim_1"], coords={"dim_0": genes, "dim_1": cells})
    found = {"zeisel": {"count.matrix.large": matrix, "labels": labels}}
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "rdata", SimpleNamespace(read_rda=lambda file: found))
        (tmp_path / "zeisel.rda").write_bytes(b"")
        table = load_cortex_counts(tmp_path / "zeisel.rda")
        np.testing.assert_array_equal(table.x.to_numpy(), counts[:, [0, 1, 2, 4]])
        assert list(table.x) == ["gene0", "gene1", "gene2", "gene4"] and table.rows["label"].tolist() == [
            *labels
        ]
        del found["zeisel"]["labels"]
        with pytest.raises(ValueError, match=r"it lacks \['labels'\]"):
            load_cortex_counts(tmp_path / "zeisel.rda")
