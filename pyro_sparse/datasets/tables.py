"""Real tables with a known answer, small enough for a first look.

`holzinger`: nine tests of three abilities, which come with this package. `load_bfi`: 25 personality items,
each written for one of five scales. `load_embedded`: tables that come with scikit-learn.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from importlib import resources
from typing import TYPE_CHECKING

import pandas as pd

from pyro_sparse.datasets._fetch import locate

if TYPE_CHECKING:
    import scipy.sparse

__all__ = ["Loaded", "holzinger", "load_bfi", "load_embedded"]

# Names and abilities of the tests; x9 is known to depend on the visual ability as well.
_HOLZINGER = {
    "x1": ("visual perception", "visual"),
    "x2": ("cubes", "visual"),
    "x3": ("lozenges", "visual"),
    "x4": ("paragraph comprehension", "verbal"),
    "x5": ("sentence completion", "verbal"),
    "x6": ("word meaning", "verbal"),
    "x7": ("addition", "speed"),
    "x8": ("counting dots", "speed"),
    "x9": ("straight and curved capitals", "speed"),
}

BFI_URL = (
    "https://raw.githubusercontent.com/vincentarelbundock/Rdatasets/"
    "1dcc2bf5f955cc1224a3e1307256e1fe86b68dae/csv/psych/bfi.csv"
)
BFI_HASH = "sha256:68ae71a96c2157b0c49b8d8f8ccaee1292f5e92adce9a3f202fdc7efac883dc9"
BFI_SCALES = {
    "A": "agreeableness",
    "C": "conscientiousness",
    "E": "extraversion",
    "N": "neuroticism",
    "O": "openness",
}
# Reverse-keyed items: agreement speaks against the scale.
BFI_REVERSED = frozenset({"A1", "C4", "C5", "E1", "E2", "O2", "O5"})
EMBEDDED = ("breast_cancer", "wine", "iris", "digits")


@dataclass(frozen=True, eq=False)
class Loaded:
    """A real table and what is known about its rows and columns.

    Parameters
    ----------
    name : str
        Data set.
    x : DataFrame or scipy.sparse.csr_array of shape (N, G)
        The values; NaN is a missing answer.
    features : DataFrame with G rows
        Facts about each column, indexed by feature name.
    rows : DataFrame with N rows
        Facts about each row.
    source : str
        Where the values came from.
    """

    name: str
    x: pd.DataFrame | scipy.sparse.csr_array
    features: pd.DataFrame
    rows: pd.DataFrame
    source: str = field(default="")

    @property
    def feature_names(self) -> list[str]:
        """Names of the columns of `x`."""
        return [str(name) for name in self.features.index]


def holzinger() -> Loaded:
    """Scores of 301 pupils in nine tests, three of each of three abilities: no network, no file.

    The best-known table of factor analysis. Tests were made to measure visual (x1 to x3), verbal (x4 to x6)
    and speed (x7 to x9) abilities; that x9, in which straight capitals are told from curved ones, is also
    visual has been reported many times.

    Returns
    -------
    Loaded
        ``features`` has columns ``test``, what each test is called, and ``scale``, the ability that it was
        made for.

    References
    ----------
    Holzinger and Swineford (1939), A study in factor analysis: the stability of a bi-factor solution,
    Supplementary Educational Monographs 48, University of Chicago. Public domain; the nine of its 26 tests
    that Joreskog (1969), Psychometrika 34(2), chose, in the units of the R package *lavaan*.

    Examples
    --------
    >>> holzinger().x.shape
    (301, 9)
    """
    with resources.files(__package__).joinpath("holzinger.csv").open("rb") as file:
        x = pd.read_csv(file)
    about = [_HOLZINGER[name] for name in x]
    features = pd.DataFrame(about, columns=["test", "scale"], index=pd.Index(list(x), name="feature"))
    return Loaded(
        "holzinger", x, features, pd.DataFrame(index=x.index), source="Holzinger and Swineford (1939)"
    )


def load_bfi(
    path: str | os.PathLike[str] | None = None,
    *,
    url: str = BFI_URL,
    known_hash: str | None = None,
    cache: str | os.PathLike[str] | None = None,
) -> Loaded:
    """Answers of 2,800 people to 25 personality items (1 to 6, some missing), five items per scale.

    Parameters
    ----------
    path : path-like, optional
        A local CSV with columns A1 ... O5 (others become row facts); nothing is downloaded then.
    url, known_hash : str, optional
        Another source and its checksum. The default is a fixed revision of the Rdatasets collection, whose
        SHA-256 is known here.
    cache : path-like, optional
        Folder for the download.

    Returns
    -------
    Loaded
        ``features`` has columns ``scale`` and ``sign`` (-1: reverse-keyed); ``rows`` the remaining columns
        (gender, education, age).

    Raises
    ------
    ValueError
        If an item column is missing from the file, or an answer is none of 1 to 6.

    References
    ----------
    Revelle, Wilt and Rosenthal (2010); data ``bfi`` of the R package *psych*.
    """
    if known_hash is None and url == BFI_URL:
        known_hash = BFI_HASH
    file = locate("bfi", path, url=url, known_hash=known_hash, cache=cache)
    assert not isinstance(file, list)  # one table, one file
    frame = pd.read_csv(file)
    if "rownames" in frame:
        frame = frame.set_index("rownames")
    items = [f"{scale}{i}" for scale in BFI_SCALES for i in range(1, 6)]
    absent = [item for item in items if item not in frame]
    if absent:
        raise ValueError(f"bfi file {file} lacks the columns {absent}; want A1 ... O5")
    x = frame[items].astype(float)
    strange = x.where(x.notna() & ~x.isin(range(1, 7))).stack().dropna()
    if len(strange):
        (row, item), answer = strange.index[0], strange.iloc[0]
        raise ValueError(f"bfi file {file}: want answers from 1 to 6, got {answer:g} to {item} in row {row}")
    features = pd.DataFrame(
        {
            "scale": [BFI_SCALES[item[0]] for item in items],
            "sign": [-1 if item in BFI_REVERSED else 1 for item in items],
        },
        index=pd.Index(items, name="item"),
    )
    return Loaded("bfi", x, features, frame.drop(columns=items), source=str(file))


def load_embedded(name: str = "breast_cancer") -> Loaded:
    """A table that comes with scikit-learn: no network, no file.

    Parameters
    ----------
    name : {"breast_cancer", "wine", "iris", "digits"}
        Which table. ``"breast_cancer"`` is 30 measurements of 569 biopsies: ten quantities, each as mean,
        standard error and worst value. Constant columns (in ``"digits"``) are left out.

    Returns
    -------
    Loaded
        ``features`` has a column ``group`` (the measured quantity, for breast_cancer; else the name);
        ``rows`` a column ``target`` with the class name.

    Raises
    ------
    ValueError
        If there is no such table.
    """
    if name not in EMBEDDED:
        raise ValueError(f"name={name!r} is not an embedded table; choose from {EMBEDDED}")
    from sklearn import datasets

    bunch = getattr(datasets, f"load_{name}")(as_frame=True)
    x = bunch.data.astype(float)
    x = x.loc[:, x.nunique() > 1]
    group = [_quantity(column) for column in x] if name == "breast_cancer" else [str(c) for c in x]
    features = pd.DataFrame({"group": group}, index=pd.Index([str(c) for c in x], name="feature"))
    labels = [str(bunch.target_names[t]) for t in bunch.target]
    return Loaded(name, x, features, pd.DataFrame({"target": labels}, index=x.index), source="scikit-learn")


def _quantity(column: str) -> str:
    for word in ("mean ", "worst "):
        column = column.removeprefix(word)
    return column.removesuffix(" error")
