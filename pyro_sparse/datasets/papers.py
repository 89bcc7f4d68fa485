"""Loaders of the large public tables of the Sparse VAE paper, with its preprocessing.

MovieLens-25M (who liked which film), PeerRead (word counts of abstracts) and the mouse-cortex cells of Zeisel
et al. The steps are the paper's; where its published code departs from them or needs software we do not, the
docstring says.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import optimize, sparse, stats

from pyro_sparse.datasets._fetch import locate
from pyro_sparse.datasets.tables import Loaded

__all__ = ["load_movielens", "load_peerread", "load_zeisel", "quantile_normalise"]

PathLike = str | os.PathLike[str]

MOVIELENS_URL = "https://files.grouplens.org/datasets/movielens/ml-25m.zip"
MOVIELENS_HASH = "md5:6b51fb2759a8657d3bfcbfc42b592ada"
ZEISEL_URL = (
    "https://storage.googleapis.com/linnarsson-lab-www-blobs/blobs/cortex/expression_mRNA_17-Aug-2014.txt"
)


def load_movielens(
    path: PathLike | None = None,
    *,
    n_movies: int = 300,
    n_users: int | None = 100_000,
    min_rating: float = 4.0,
    min_liked: int = 20,
    seed: int = 42,
    url: str = MOVIELENS_URL,
    known_hash: str | None = None,
    cache: PathLike | None = None,
) -> Loaded:
    """Which of the most-liked films each user liked (0/1), from MovieLens-25M.

    Ratings of at least `min_rating` count as 1; users with at least `min_liked` such ratings stay; then the
    `n_movies` films with most of them; then `n_users` of the users who like any of those, at random.

    Parameters
    ----------
    path : path-like, optional
        A folder with ``ratings.csv`` and ``movies.csv``, or the archive ``ml-25m.zip``.
    n_movies, n_users : int
        Columns, and rows (None, or more than there are: all).
    min_rating, min_liked : float, int
        As above.
    seed : int
        Seed of the choice of users.
    url, known_hash, cache : str, str, path-like
        Another source, its checksum, the download folder. The MD5 of the default archive is GroupLens's own.

    Returns
    -------
    Loaded
        ``x`` is a float32 sparse CSR array; ``features`` (title, genres) is indexed by film; ``rows`` has
        ``userId``.

    Raises
    ------
    ValueError
        If no rating survives the filters, or the source is not what is wanted.

    References
    ----------
    Harper and Konstan (2015); preprocessing of Moran et al. (2022), section 5.
    """
    if known_hash is None and url == MOVIELENS_URL:
        known_hash = MOVIELENS_HASH
    ratings, movies = _movielens_frames(path, url, known_hash, cache)
    liked = ratings.loc[ratings["rating"] >= min_rating, ["userId", "movieId"]].drop_duplicates()
    liked = liked[liked.groupby("userId")["userId"].transform("size") >= min_liked]
    if liked.empty:
        raise ValueError(f"no user has min_liked={min_liked} ratings of at least min_rating={min_rating}")
    top = np.sort(liked["movieId"].value_counts(sort=True).index[:n_movies])
    liked = liked[liked["movieId"].isin(top)]
    users = np.unique(liked["userId"])
    if n_users is not None and n_users < len(users):
        users = np.sort(np.random.default_rng(seed).choice(users, size=n_users, replace=False))
        liked = liked[liked["userId"].isin(users)]
    index = (np.searchsorted(users, liked["userId"]), np.searchsorted(top, liked["movieId"]))
    x = sparse.csr_array((np.ones(len(liked), dtype=np.float32), index), shape=(len(users), len(top)))
    twice = movies.loc[movies["movieId"].duplicated(), "movieId"]
    if len(twice):
        raise ValueError(f"movies.csv: want every film once, got movieId {twice.iloc[0]} more than once")
    facts = movies.set_index("movieId").reindex(top)
    titles = facts["title"].where(facts["title"].notna(), [f"film {movie}" for movie in top])
    facts = facts.reset_index().set_index(pd.Index(_unique(titles.astype(str)), name="film"))
    return Loaded("movielens", x, facts, pd.DataFrame({"userId": users}), source=str(path or url))


def load_peerread(
    path: PathLike,
    *,
    n_words: int | None = 500,
    text_column: str = "abstract_text",
    max_df: float = 0.9,
    min_df: float = 0.0007,
    tokenizer: Callable[[str], list[str]] | None = None,
) -> Loaded:
    """Word counts of paper abstracts (PeerRead), the `n_words` most frequent words.

    Words in more than `max_df` or fewer than `min_df` of the abstracts and English stop words are left out,
    as are abstracts with at most one counted word. PeerRead is a repository of files, not one file: there is
    nothing to fetch by checksum, so a local copy is needed.

    Parameters
    ----------
    path : path-like
        A CSV with a column `text_column`, or a checkout of PeerRead: abstracts are then read from
        ``**/parsed_pdfs/*.json`` (``metadata.abstractText``).
    n_words : int or None
        Words kept; None keeps all.
    text_column : str
        Column of the CSV.
    max_df, min_df : float
        Largest and smallest share of abstracts a word may be in.
    tokenizer : callable, optional
        Text to list of words. The paper lemmatises with NLTK: pass that tokenizer to repeat it. By default
        lower-case alphabetic words of two letters or more, not lemmatised.

    Returns
    -------
    Loaded
        ``x`` is a float32 sparse CSR array of counts; ``rows`` has the document's number in the source.

    Raises
    ------
    ValueError
        If no abstract is found, or a file is no JSON.

    References
    ----------
    Kang et al. (2018); preprocessing of Moran et al. (2022), section 5.
    """
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS, CountVectorizer

    source = locate("PeerRead", path, url=None, known_hash=None)
    assert isinstance(source, Path)
    texts = list(_abstracts(source, text_column))
    if not texts:
        raise ValueError(f"no abstracts under {source}: want **/parsed_pdfs/*.json or a CSV")
    stop = None if tokenizer is not None else list(ENGLISH_STOP_WORDS)
    words = (
        tokenizer
        if tokenizer is None
        else (lambda text: [w for w in tokenizer(text) if w not in ENGLISH_STOP_WORDS])
    )
    counter = CountVectorizer(
        tokenizer=words,
        token_pattern=None if words is not None else r"(?u)\b[^\W\d_]{2,}\b",
        stop_words=stop,
        max_df=max_df,
        min_df=min_df,
        max_features=n_words,
        dtype=np.float32,
    )
    counts = sparse.csr_array(counter.fit_transform(texts))
    kept = np.flatnonzero(np.asarray(counts.sum(axis=1)).ravel() > 1)
    vocabulary = counter.get_feature_names_out()
    features = pd.DataFrame(
        {"total": np.asarray(counts.sum(axis=0)).ravel()}, index=pd.Index(vocabulary, name="word")
    )
    return Loaded("peerread", counts[kept], features, pd.DataFrame({"document": kept}), source=str(source))


def load_zeisel(
    path: PathLike | None = None,
    *,
    n_genes: int = 558,
    n_variable: int = 5000,
    min_molecules: int = 25,
    min_neighbours: int = 5,
    neighbour_correlation: float = 0.2091,
    normalise: bool = True,
    url: str = ZEISEL_URL,
    known_hash: str | None = None,
    cache: PathLike | None = None,
) -> Loaded:
    r"""Molecule counts of 3,005 mouse-cortex cells (Zeisel et al. 2015), filtered and quantile-normalised.

    In order: genes with at least `min_molecules` molecules; genes correlated above `neighbour_correlation`
    with at least `min_neighbours` others; the `n_variable` genes furthest above the noise curve
    :math:`\log_2 \mathrm{CV} = \log_2(\mu^{\alpha} + k)`; quantile normalisation of the cells; the
    `n_genes` genes of largest standard deviation.

    Parameters
    ----------
    path : path-like, optional
        A local copy of ``expression_mRNA_17-Aug-2014.txt``. No checksum of the public file is known here, so
        a download needs `known_hash`.
    n_genes, n_variable, min_molecules, min_neighbours, neighbour_correlation
        The filters above.
    normalise : bool
        False returns the molecule counts of the chosen genes (for a negative binomial likelihood).
    url, known_hash, cache : str, str, path-like
        Source, its checksum, the download folder.

    Returns
    -------
    Loaded
        ``x`` is a DataFrame of cells by genes; ``rows`` the cells' annotations (``level1class`` ...).

    Raises
    ------
    ValueError
        If no gene survives a filter, or the file has another layout.

    References
    ----------
    Zeisel et al. (2015), supplementary p. 5; Moran et al. (2022), section 5.
    """
    file = locate("Zeisel", path, url=url, known_hash=known_hash, cache=cache)
    assert isinstance(file, Path)
    counts, cells = _read_zeisel(file)
    counts = counts.loc[:, counts.sum() >= min_molecules]
    if counts.empty:
        raise ValueError(f"no gene has min_molecules={min_molecules} molecules")
    values = counts.to_numpy()
    keep = _neighbours(values, neighbour_correlation) >= min_neighbours
    if not keep.any():
        raise ValueError(
            f"no gene has min_neighbours={min_neighbours} correlated above {neighbour_correlation}"
        )
    counts, values = counts.loc[:, keep], values[:, keep]
    variable = np.sort(np.argsort(-_noise(values), kind="stable")[:n_variable])
    chosen = quantile_normalise(values[:, variable])
    top = np.sort(np.argsort(-chosen.std(0), kind="stable")[:n_genes])
    columns = counts.columns[variable[top]]
    x = pd.DataFrame(
        chosen[:, top] if normalise else values[:, variable[top]], index=counts.index, columns=columns
    )
    features = pd.DataFrame({"molecules": counts[columns].sum()}, index=pd.Index(columns, name="gene"))
    return Loaded("zeisel", x, features, cells, source=str(file))


def quantile_normalise(x: np.ndarray) -> np.ndarray:
    """Give every row the same distribution: the mean of the rows' sorted values, ties at their mean rank.

    Parameters
    ----------
    x : array_like of shape (N, G)
        Rows are samples.

    Returns
    -------
    ndarray of shape (N, G)
        Each value replaced by the average order statistic of its rank in its row.

    References
    ----------
    Bolstad et al. (2003).
    """
    x = np.asarray(x, dtype=float)
    reference = np.sort(x, axis=1).mean(0)
    rank = stats.rankdata(x, method="average", axis=1) - 1
    return np.interp(rank, np.arange(x.shape[1]), reference)


def _movielens_frames(
    path: PathLike | None, url: str, known_hash: str | None, cache: PathLike | None
) -> tuple[pd.DataFrame, pd.DataFrame]:
    wanted = {"ratings": ["userId", "movieId", "rating"], "movies": ["movieId", "title", "genres"]}
    members = tuple(f"ml-25m/{name}.csv" for name in wanted)
    source = locate("MovieLens", path, url=url, known_hash=known_hash, cache=cache, unpack=members)
    frames = {}
    with contextlib.ExitStack() as stack:
        if isinstance(source, Path) and source.is_file():
            if not zipfile.is_zipfile(source):
                raise ValueError(f"MovieLens source {source} is no zip archive; want ml-25m.zip or a folder")
            archive = stack.enter_context(zipfile.ZipFile(source))
            files: dict[str, Any] = {Path(m).stem: m for m in archive.namelist() if Path(m).suffix == ".csv"}
        else:
            listed = source if isinstance(source, list) else sorted(source.glob("*.csv"))
            files = {file.stem: file for file in listed}
        absent = [name for name in wanted if name not in files]
        if absent:
            raise ValueError(f"MovieLens source {source} lacks {absent}; want ratings.csv and movies.csv")
        for name, columns in wanted.items():
            file = files[name]
            handle = stack.enter_context(file.open("rb") if isinstance(file, Path) else archive.open(file))
            frames[name] = pd.read_csv(handle, usecols=columns)
    return frames["ratings"], frames["movies"]


def _abstracts(source: Path, column: str) -> Iterable[str]:
    if source.is_file():
        frame = pd.read_csv(source)
        if column not in frame:
            raise ValueError(f"text_column={column!r} is not in {source}; it has {list(frame.columns)}")
        yield from frame[column].dropna().astype(str)
        return
    for file in sorted(source.glob("**/parsed_pdfs/*.json")):
        try:
            paper = json.loads(file.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{file} is no JSON: {error}; fix it or leave it out") from error
        metadata = paper.get("metadata") if isinstance(paper, dict) else None
        text = metadata.get("abstractText") if isinstance(metadata, dict) else None
        if text:
            yield str(text)


def _read_zeisel(file: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Ten lines of annotations (name in the second column), a blank line, then gene, cluster, counts."""
    with file.open(encoding="utf-8") as lines:
        head = [line.rstrip("\n").split("\t") for line in itertools.islice(lines, 11)]
    if len(head) < 11 or any(head[10]) or not all(len(row) > 2 for row in head[:10]):
        raise ValueError(f"{file}: want ten lines of annotations of cells, then a blank one, got others")
    cells = pd.DataFrame({row[1]: row[2:] for row in head[:10]})
    body = pd.read_csv(file, sep="\t", skiprows=11, header=None, index_col=0, quoting=3)
    counts = body.iloc[:, 1:].T.astype(float)
    if len(counts) != len(cells):
        raise ValueError(f"{file} has {len(cells)} annotated cells and {len(counts)} columns of counts")
    names = cells["cell_id"] if "cell_id" in cells else pd.RangeIndex(len(cells))
    counts.index = pd.Index(names, name="cell")
    counts.columns = pd.Index(_unique(body.index.astype(str)), name="gene")
    return counts, cells.set_index(counts.index)


def _neighbours(x: np.ndarray, threshold: float, chunk: int = 1000) -> np.ndarray:
    """How many *other* columns each column is correlated with above the threshold, a block at a time."""
    scaled = x - x.mean(0)
    scale = np.sqrt((scaled**2).sum(0))
    scaled = (scaled / np.where(scale > 0, scale, 1.0)).astype(np.float32)
    blocks = range(0, x.shape[1], chunk)
    varies = scale > 0
    total = np.concatenate([((scaled[:, i : i + chunk].T @ scaled) > threshold).sum(1) for i in blocks])
    return total - varies


def _noise(x: np.ndarray) -> np.ndarray:
    """Distance above the curve log2 CV = log2(mean^a + k), fitted by least absolute residuals."""
    mean = x.mean(0)
    log_cv = np.log2(x.std(0, ddof=1) / mean)

    def residual(p: np.ndarray) -> np.ndarray:
        return log_cv - np.log2(mean ** p[0] + np.exp(p[1]))

    def loss(p: np.ndarray) -> float:
        return float(np.abs(residual(p)).sum())

    return residual(optimize.minimize(loss, np.array([-0.5, np.log(0.5)]), method="Nelder-Mead").x)


def _unique(names: Iterable[str]) -> list[str]:
    counts: dict[str, int] = {}
    out = []
    for name in names:
        new = name
        while new in counts:
            counts[name] += 1
            new = f"{name} ({counts[name]})"
        counts[new] = 1
        out.append(new)
    return out
