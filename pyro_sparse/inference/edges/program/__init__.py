"""Which edges of a program are there? Chains over all it holds, and the object that they end in."""

__all__: list[str] = []
