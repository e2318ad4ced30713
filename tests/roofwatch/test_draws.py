"""The cache of random numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from roofwatch.spec import Case, Draws, InputMaker, cases

ONE, OTHER = (replace(case, kernel="example") for case in cases(shapes=[{"n": 5}, {"n": 6}], dtypes=["float32"]))

Make = Callable[[InputMaker], list[torch.Tensor]]


def usual(make: InputMaker) -> list[torch.Tensor]:
    return [make.normal(3, 4), make.uniform(5), make.integers(6, high=9), make.permutation(7), make.normal(2, scale=3)]


def changed(make: InputMaker) -> list[torch.Tensor]:
    return [make.normal(3, 4), make.integers(6, high=90), make.normal(2, scale=3), make.permutation(4)]


def made(draws: Draws | None, make: Make = usual, case: Case = ONE) -> list[torch.Tensor]:
    return make(InputMaker(case, draws=draws))


@pytest.mark.parametrize("max_bytes", [0, 30, 100, 2**20])
def test_cached_draws_do_not_change_inputs(max_bytes: int) -> None:
    draws = Draws(max_bytes)

    for make, case in [(usual, ONE), (usual, ONE), (changed, ONE), (usual, ONE), (usual, OTHER), (changed, ONE)]:
        inputs = made(draws, make, case)
        assert all(map(torch.equal, inputs, made(None, make, case)))
        for tensor in inputs:
            tensor.zero_()  # must not change the kept numbers


def test_nothing_is_drawn_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    draws = Draws()
    first = made(draws)
    for name in ("randn", "rand", "randint", "randperm"):
        monkeypatch.delattr(torch, name)

    assert all(map(torch.equal, made(draws), first))
