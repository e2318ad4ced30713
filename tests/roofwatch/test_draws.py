"""Numbers that were drawn for a case before are the same as if they were drawn again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from roofwatch.spec import Case, Draws, InputMaker, cases

ONE, OTHER = (replace(case, kernel="example") for case in cases(shapes=[{"n": 5}, {"n": 6}], dtypes=["float32"]))

Making = Callable[[InputMaker], list[torch.Tensor]]


def usual(make: InputMaker) -> list[torch.Tensor]:
    return [make.normal(3, 4), make.uniform(5), make.integers(6, high=9), make.permutation(7), make.normal(2, scale=3)]


def otherwise(make: InputMaker) -> list[torch.Tensor]:
    return [make.normal(3, 4), make.integers(6, high=90), make.normal(2, scale=3), make.permutation(4)]


def made(draws: Draws | None, making: Making = usual, case: Case = ONE) -> list[torch.Tensor]:
    return making(InputMaker(case, draws=draws))


def are_equal(some: list[torch.Tensor], others: list[torch.Tensor]) -> bool:
    return all(torch.equal(one, other) for one, other in zip(some, others, strict=True))


@pytest.mark.parametrize("max_bytes", [0, 30, 100, 2**20])
def test_inputs_are_the_same_whatever_is_kept(max_bytes: int) -> None:
    draws = Draws(max_bytes)

    for making, case in [(usual, ONE), (usual, ONE), (otherwise, ONE), (usual, ONE), (usual, OTHER), (otherwise, ONE)]:
        assert are_equal(made(draws, making, case), made(None, making, case))


def test_nothing_is_drawn_a_second_time(monkeypatch: pytest.MonkeyPatch) -> None:
    draws = Draws()
    first = made(draws)
    for name in ("randn", "rand", "randint", "randperm"):
        monkeypatch.delattr(torch, name)

    assert are_equal(made(draws), first)


def test_an_input_that_is_changed_changes_no_other() -> None:
    draws = Draws()
    for tensor in made(draws):
        tensor.zero_()

    assert are_equal(made(draws), made(None))
