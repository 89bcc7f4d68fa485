"""How is a program of a user's own fitted? Its density recorded once, the blocks that chains draw, good starts."""

__all__: list[str] = []
