"""A call leaves torch's random stream and number of threads as it found them."""

from __future__ import annotations

import pytest
import torch

from pyro_sparse._torch import undisturbed


def test_stream_and_threads_are_restored_even_after_an_error():
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    with pytest.raises(ZeroDivisionError), undisturbed(seed=3, threads=2):
        assert torch.get_num_threads() == 2
        torch.rand(5)
        raise ZeroDivisionError
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), state)


def test_seed_decides_and_none_continues():
    def draw(seed: int | None) -> float:
        with undisturbed(seed=seed):
            return float(torch.rand(()))

    assert draw(1) == draw(1) != draw(2)
    torch.manual_seed(5)
    expected = float(torch.rand(()))
    torch.manual_seed(5)
    assert draw(None) == expected
