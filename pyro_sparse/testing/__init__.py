"""Test batteries to inherit: they tell whether an extension is sound."""

from __future__ import annotations

from .likelihood import LikelihoodTestCase
from .prior import PriorTestCase

__all__ = ["LikelihoodTestCase", "PriorTestCase"]
