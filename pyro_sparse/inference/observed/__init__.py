"""Which measured variable, at which lag, drives which? Terms, their posterior, what speaks against it."""

__all__: list[str] = []
