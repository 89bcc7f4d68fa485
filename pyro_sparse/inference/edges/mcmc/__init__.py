"""How do chains run? Where they begin, which moves they make, when they stop, whether they agree."""

__all__: list[str] = []
