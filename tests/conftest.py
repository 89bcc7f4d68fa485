"""One thread per process: the models are tiny, and several test processes share the cores."""

from __future__ import annotations

import torch

torch.set_num_threads(1)
