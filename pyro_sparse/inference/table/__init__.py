"""How is a table fitted? Starts from its cells, the runs of its models, the checks of what came of it."""

__all__: list[str] = []
