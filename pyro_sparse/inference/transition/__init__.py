"""How are sequences fitted? Transitions of latents, their graph under a budget, forecasts."""

__all__: list[str] = []
