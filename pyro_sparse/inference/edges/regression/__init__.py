"""Which sources does one target use? Edge probabilities of sparse regressions: exact, EP, Gibbs."""

__all__: list[str] = []
