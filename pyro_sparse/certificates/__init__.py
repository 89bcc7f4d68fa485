"""Which latents a fit's graph identifies, under which theorem, and how surely.

`identify` asks the right criteria of whatever was fitted, a file for each kind: `table`, `tasks`,
`transition`, `dictionaries`; all answer with a `Certificate`.
"""

from .certificate import Certificate
from .identify import identify

__all__ = ["Certificate", "identify"]
