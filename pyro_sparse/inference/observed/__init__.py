"""Which observed variable, at which lag, and which action drives which: terms, their posterior, its checks."""

__all__: list[str] = []
