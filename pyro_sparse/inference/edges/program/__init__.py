"""Markov chains over any program with a declared graph: blocks, edges, axes, and the draws they make."""

from __future__ import annotations
