"""How are two sparse autoencoders around a layer trained together, and what do several such pairs say?"""

from __future__ import annotations

__all__: list[str] = []
