"""In which axes of a space is a graph sparsest? Rotations of loadings, of Jacobians, of curves."""

__all__: list[str] = []
