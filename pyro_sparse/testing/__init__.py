"""Test batteries to inherit, strategies to fuzz with: they tell whether an extension is sound."""

from __future__ import annotations

from .likelihood import LikelihoodTestCase
from .outcomes import outcome
from .prior import PriorTestCase
from .program import ProgramTestCase

__all__ = ["LikelihoodTestCase", "PriorTestCase", "ProgramTestCase", "outcome"]
