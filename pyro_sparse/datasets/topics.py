"""Word counts whose topics are correlated in training and not in testing: a domain shift with a known answer.

Topic proportions theta come from Dirichlet documents, or from LDA fitted to real counts. In the training draw
the second half of the topics are noisy copies of the first half; the test draw keeps the original theta. A
model that has found the topics' own words predicts both; one that has learnt "these two go together" fails on
the second.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from pyro_sparse._utils.checks import check_whole
from pyro_sparse.datasets.simulated import Simulated

__all__ = ["CORRELATION", "topic_counts"]

CORRELATION = {"high": 0.5, "medium": 1.0, "low": 3.0}
"""Noise (in logs) of the copied topics: the less noise, the stronger the correlation."""


def topic_counts(
    n: int = 2000,
    n_words: int = 500,
    n_topics: int = 20,
    *,
    correlation: str | float = "high",
    draw: str = "expected",
    counts: ArrayLike | sparse.sparray | sparse.spmatrix | None = None,
    vocabulary: list[str] | None = None,
    anchors_per_topic: int = 2,
    words_per_topic: int = 60,
    mean_length: float = 80.0,
    seed: int = 0,
) -> Simulated:
    r"""Semi-synthetic topic counts with a correlated training draw and an original test draw.

    With :math:`\theta` the proportions of K topics and :math:`h = K/2`, the training proportions are

    .. math::

        \log\theta'_{ik} = \log\theta_{ik},\quad
        \log\theta'_{i,k+h} = \log\theta_{ik} + \sigma\epsilon_{ik} \quad (k \le h),

    renormalised to sum to one, and the expected counts are :math:`N_i\,\theta_i\beta`.

    Parameters
    ----------
    n, n_words, n_topics : int
        Documents in *each* draw, words G and topics K (even). `n` and `n_words` are ignored with `counts`.
    correlation : {"high", "medium", "low"} or float
        Sigma of the copies: .5, 1 and 3 for the three words.
    draw : {"expected", "multinomial"}
        ``"expected"`` rounds the expected counts, as the paper's code does; ``"multinomial"`` draws them.
    counts : array_like or sparse matrix of shape (n_documents, n_words), optional
        Real counts (such as `load_peerread`'s): theta and beta are then those of scikit-learn's LDA fitted to
        them, and document lengths are theirs. By default both are simulated.
    vocabulary : list of str, optional
        Names of the words.
    anchors_per_topic : int
        Words only one topic uses (simulated topics only).
    words_per_topic : int
        Words that have probability in a topic, anchors included (simulated topics only).
    mean_length : float
        Mean words per document; lengths are negative binomial with shape 5 (simulated topics only).
    seed : int
        Seed of the draw.

    Returns
    -------
    Simulated
        ``x`` stacks the two draws, rows with no words left out; ``z`` holds the topic proportions that made
        each row; ``support[j, k]`` is 1 where topic k gives word j probability (for fitted topics: more than
        1/G).

    Raises
    ------
    ValueError
        If an argument is out of range, or every document is empty.

    References
    ----------
    Moran, Sridhar, Wang and Blei (2022), section 5 (semi-synthetic PeerRead).
    """
    if isinstance(correlation, str):
        if correlation not in CORRELATION:
            raise ValueError(f"correlation={correlation!r} must be one of {sorted(CORRELATION)} or a number")
        sigma = CORRELATION[correlation]
    else:
        sigma = float(correlation)
    check_whole(0, seed=seed, anchors_per_topic=anchors_per_topic)
    check_whole(1, n=n, n_words=n_words, n_topics=n_topics, words_per_topic=words_per_topic)
    if n_topics % 2:
        raise ValueError(f"n_topics={n_topics} must be even: one half copies the other")
    if draw not in ("expected", "multinomial"):
        raise ValueError(f"draw={draw!r} must be 'expected' or 'multinomial'")
    rng = np.random.default_rng(seed)
    if counts is None:
        beta = _simulated_topics(n_words, n_topics, anchors_per_topic, words_per_topic, rng)
        # Above zero, since the copies are made of logarithms.
        theta = np.maximum(rng.dirichlet(np.full(n_topics, 0.1), size=n), 1e-10)
        length = 1 + rng.negative_binomial(5, 5 / (5 + mean_length), size=n)
        support = (beta > 0).T.astype(int)
    else:
        counts = counts if sparse.issparse(counts) else np.asarray(counts)
        theta, beta, length = _fitted_topics(counts, n_topics, seed)
        n_words = beta.shape[1]
        support = (beta > 1.0 / n_words).T.astype(int)
    theta = theta / theta.sum(1, keepdims=True)
    shifted = _copy_half(theta, sigma, rng)
    tables = [_draw(p, beta, length, draw, rng) for p in (shifted, theta)]
    kept = [table.sum(1) > 0 for table in tables]
    if not all(k.any() for k in kept):
        raise ValueError("every document is empty: raise mean_length, or give counts of longer documents")
    x = np.concatenate([table[k] for table, k in zip(tables, kept, strict=True)])
    z = np.concatenate([p[k] for p, k in zip((shifted, theta), kept, strict=True)])
    names = [f"word{j + 1}" for j in range(n_words)] if vocabulary is None else list(vocabulary)
    if len(names) != n_words:
        raise ValueError(f"vocabulary has {len(names)} names for {n_words} words")
    train = int(kept[0].sum())
    return Simulated(
        name="topic_counts",
        x=x,
        z=z,
        support=support,
        kind=tuple("anchor" if row.sum() == 1 else "shared" for row in support),
        feature_names=names,
        factor_names=[f"topic{k + 1}" for k in range(n_topics)],
        splits={"train": np.arange(train), "test": np.arange(train, len(x))},
        settings={
            "n_topics": n_topics,
            "sigma": sigma,
            "draw": draw,
            "seed": seed,
            "fitted": counts is not None,
        },
    )


def _copy_half(theta: np.ndarray, sigma: float, rng: np.random.Generator) -> np.ndarray:
    half = theta.shape[1] // 2
    logs = np.log(theta[:, :half])
    weights = np.hstack([logs, logs + sigma * rng.standard_normal(logs.shape)])
    weights = np.exp(weights - weights.max(1, keepdims=True))
    return weights / weights.sum(1, keepdims=True)


def _draw(
    theta: np.ndarray, beta: np.ndarray, length: np.ndarray, draw: str, rng: np.random.Generator
) -> np.ndarray:
    share = theta @ beta
    if draw == "expected":
        return np.rint(length[:, None] * share)
    return rng.multinomial(length, share / share.sum(1, keepdims=True)).astype(float)


def _simulated_topics(
    n_words: int, n_topics: int, anchors: int, per_topic: int, rng: np.random.Generator
) -> np.ndarray:
    shared = np.arange(anchors * n_topics, n_words)
    extra = per_topic - anchors
    if anchors < 0 or extra < 0 or extra > len(shared):
        raise ValueError(
            f"n_words={n_words} cannot hold {n_topics} topics of words_per_topic={per_topic} words with "
            f"anchors_per_topic={anchors}: raise n_words or lower words_per_topic"
        )
    beta = np.zeros((n_topics, n_words))
    for k in range(n_topics):
        anchor_words = np.arange(k * anchors, (k + 1) * anchors)
        words = np.concatenate([anchor_words, rng.choice(shared, size=extra, replace=False)])
        beta[k, words] = rng.dirichlet(np.full(len(words), 0.5)) + 1e-3
    return beta / beta.sum(1, keepdims=True)


def _fitted_topics(
    counts: np.ndarray | sparse.sparray | sparse.spmatrix, n_topics: int, seed: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    from sklearn.decomposition import LatentDirichletAllocation

    lda = LatentDirichletAllocation(n_components=n_topics, random_state=seed)
    theta = lda.fit_transform(counts)
    beta = lda.components_ / lda.components_.sum(1, keepdims=True)
    length = np.asarray(counts.sum(axis=1)).ravel().round().astype(int)
    return theta, beta, length
