"""From a program of a user's own to its density, recorded once, and to good starts for chains."""

from __future__ import annotations
