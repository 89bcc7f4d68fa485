"""pyro_sparse: sparse, identifiable latent-variable models on Pyro, and how sure you can be of each edge.

Names are imported when they are first used: what they are and where they come from stands in `__init__.pyi`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
