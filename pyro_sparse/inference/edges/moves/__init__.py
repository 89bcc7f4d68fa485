"""How does a chain move? Steps that leave the density as it is, each a function of a state."""

__all__: list[str] = []
