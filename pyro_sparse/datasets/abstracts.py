"""PeerRead, abstracts of papers as word counts, with the preprocessing of the Sparse VAE paper."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import sparse

from pyro_sparse.datasets._fetch import locate
from pyro_sparse.datasets.tables import Loaded

__all__ = ["load_peerread"]

PathLike = str | os.PathLike[str]


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
