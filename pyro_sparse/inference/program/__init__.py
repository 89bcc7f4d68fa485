"""How is a user's own program fitted? Its density recorded once, the blocks that chains draw, good starts."""

__all__: list[str] = []
