"""MovieLens, who liked which film, with the preprocessing of the Sparse VAE paper."""

from __future__ import annotations

import contextlib
import csv
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse

from pyro_sparse.datasets._fetch import locate
from pyro_sparse.datasets._names import unique_names
from pyro_sparse.datasets.tables import Loaded

__all__ = ["load_movielens"]

PathLike = str | os.PathLike[str]
File = Path | zipfile.Path

MOVIELENS_URL = "https://files.grouplens.org/datasets/movielens/ml-25m.zip"
MOVIELENS_HASH = "md5:6b51fb2759a8657d3bfcbfc42b592ada"
COLUMNS = {"ratings": ["userId", "movieId", "rating"], "movies": ["movieId", "title", "genres"]}
# The columns of u.item, in the order of u.genre.
GENRES = (
    "unknown",
    "Action",
    "Adventure",
    "Animation",
    "Children's",
    "Comedy",
    "Crime",
    "Documentary",
    "Drama",
    "Fantasy",
    "Film-Noir",
    "Horror",
    "Musical",
    "Mystery",
    "Romance",
    "Sci-Fi",
    "Thriller",
    "War",
    "Western",
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
    """Which of the most-liked films each user liked (0/1), from MovieLens-25M, 20M or 100k.

    Ratings of at least `min_rating` count as 1; users with at least `min_liked` such ratings stay; then the
    `n_movies` films with most of them; then `n_users` of the users who like any of those, at random.

    Parameters
    ----------
    path : path-like, optional
        A folder with ``ratings.csv`` and ``movies.csv`` (25M, 20M), or with ``u.data`` (or ``u1.base`` and
        ``u1.test``, together the same) and ``u.item`` (100k); or the zip archive of one.
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
    facts = facts.reset_index().set_index(pd.Index(unique_names(titles.astype(str)), name="film"))
    return Loaded("movielens", x, facts, pd.DataFrame({"userId": users}), source=str(path or url))


def _movielens_frames(
    path: PathLike | None, url: str, known_hash: str | None, cache: PathLike | None
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Ratings (userId, movieId, rating) and films (movieId, title, genres)."""
    members = tuple(f"ml-25m/{name}.csv" for name in COLUMNS)
    source = locate("MovieLens", path, url=url, known_hash=known_hash, cache=cache, unpack=members)
    with contextlib.ExitStack() as stack:
        files = _files(source, stack)
        if "u.item" in files:
            return _ratings_of_1998(files, source), _films_of_1998(files["u.item"])
        absent = [name for name in COLUMNS if f"{name}.csv" not in files]
        if absent:
            raise ValueError(
                f"MovieLens source {source} lacks {absent}; want ratings.csv and movies.csv (25M, 20M), or "
                "u.data and u.item (100k)"
            )
        frames = [_read(files[f"{name}.csv"], usecols=columns) for name, columns in COLUMNS.items()]
    return frames[0], frames[1]


def _files(source: Path | list[Path], stack: contextlib.ExitStack) -> dict[str, File]:
    """The files of a folder, of an archive or of a list, by name."""
    if isinstance(source, Path) and source.is_file():
        if not zipfile.is_zipfile(source):
            raise ValueError(f"MovieLens source {source} is no zip archive; want ml-25m.zip or a folder")
        archive = stack.enter_context(zipfile.ZipFile(source))
        return {Path(name).name: zipfile.Path(archive, name) for name in archive.namelist()}
    listed = source if isinstance(source, list) else sorted(source.iterdir())
    return {file.name: file for file in listed if file.is_file()}


def _read(file: File, **options: Any) -> pd.DataFrame:
    with file.open("rb") as handle:
        frame: pd.DataFrame = pd.read_csv(handle, **options)
    return frame


def _ratings_of_1998(files: dict[str, File], source: Path | list[Path]) -> pd.DataFrame:
    """`u.data`, or a split whose two halves are all of it; further columns are left alone."""
    names = ["u.data"] if "u.data" in files else ["u1.base", "u1.test"]
    absent = [name for name in names if name not in files]
    if absent:
        raise ValueError(f"MovieLens source {source} has u.item, but lacks {absent}; want u.data")
    read = [_read(files[name], sep="\t", header=None, usecols=[0, 1, 2]) for name in names]
    return pd.concat(read, ignore_index=True).set_axis(COLUMNS["ratings"], axis=1)


def _films_of_1998(file: File) -> pd.DataFrame:
    """`u.item`: number, title, two dates and an address, then a 0 or 1 for each genre."""
    films = _read(file, sep="|", header=None, encoding="latin-1", quoting=csv.QUOTE_NONE)
    if films.shape[1] != 5 + len(GENRES):
        raise ValueError(
            f"u.item: want {5 + len(GENRES)} columns with | between them, the last {len(GENRES)} genres, "
            f"got {films.shape[1]}"
        )
    flags = films.iloc[:, 5:].to_numpy(dtype=bool)
    genres = ["|".join(genre for genre, has in zip(GENRES, row, strict=True) if has) for row in flags]
    return pd.DataFrame({"movieId": films[0], "title": films[1], "genres": genres})
