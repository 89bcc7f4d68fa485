"""Which latents and actions drive the next latents? Probabilities of parent sets by their evidence."""

__all__: list[str] = []
