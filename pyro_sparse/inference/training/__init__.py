"""How is a model trained? The loop, its ELBO, optimisers, restarts and checkpoints; knows no family."""

__all__: list[str] = []
