"""A call leaves torch's random stream and number of threads as it found them."""

from __future__ import annotations

import pytest
import torch

from pyro_sparse._utils.torch_state import load_random_state, no_subnormals, random_state, undisturbed


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


@pytest.mark.skipif(not torch.set_flush_denormal(False), reason="this processor has no such mode")
@pytest.mark.parametrize("own", [False, True])
def test_small_numbers_are_zero_only_inside(own):
    def small():
        return float(torch.tensor(1e-40) * 1.0) != 0

    torch.set_flush_denormal(own)
    try:
        assert small() is not own
        with pytest.raises(ZeroDivisionError), no_subnormals():
            assert not small()
            raise ZeroDivisionError
        assert small() is not own
    finally:
        torch.set_flush_denormal(False)


def test_a_random_state_continues_the_stream():
    state = random_state()
    first = torch.randn(5)
    load_random_state(state)
    assert torch.equal(torch.randn(5), first)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator")
def test_the_accelerators_stream_is_restored_too():
    torch.randn(1, device="cuda")
    state = random_state()
    first = torch.randn(5, device="cuda")
    with undisturbed(seed=0):
        torch.randn(5, device="cuda")
    second = torch.randn(5, device="cuda")
    load_random_state(state)
    assert torch.equal(torch.randn(5, device="cuda"), first)
    assert torch.equal(torch.randn(5, device="cuda"), second)
