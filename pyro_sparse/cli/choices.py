"""Words that options take, one class an option; `--help` lists them."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["Decoder", "EdgeMeaning", "EdgeMethod", "Generator", "WeightType"]


class Generator(StrEnum):
    """Simulated tables with a known graph."""

    sim1 = "sim1"
    anchored60 = "anchored60"
    topics = "topics"


class Decoder(StrEnum):
    """How features depend on factors."""

    mlp = "mlp"
    linear = "linear"


class EdgeMethod(StrEnum):
    """What puts a number on each edge."""

    auto = "auto"
    mcmc = "mcmc"
    score = "score"
    polish = "polish"  # the former name of mcmc


class WeightType(StrEnum):
    """What weights of rows mean."""

    frequency = "frequency"
    survey = "survey"


class EdgeMeaning(StrEnum):
    """What an edge is."""

    prior = "prior"
    practical = "practical"
