"""What do chains sample? Densities of cells, weights, rates and scales, and what each asks of a model."""

__all__: list[str] = []
