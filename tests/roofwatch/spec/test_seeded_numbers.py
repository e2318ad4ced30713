"""Seeded numbers: their distribution, and what does not change them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from roofwatch.collector.accuracy.evaluation import UpstreamGradients
from roofwatch.spec import InputMaker, cases, seeded_numbers
from roofwatch.spec.seeded_numbers import FIRST_LENGTH, SECOND_LENGTH

CASE = replace(cases(shapes=[{"n": 5}], dtypes=["float32"])[0], kernel="example")
LARGE = 3 * FIRST_LENGTH + 17


def test_inputs_are_equal_each_time_they_are_made() -> None:
    first, second = InputMaker(CASE), InputMaker(CASE)

    for length in (7, LARGE):
        assert torch.equal(first.normal(length), second.normal(length))
        assert torch.equal(first.uniform(length), second.uniform(length))
        assert torch.equal(first.integers(length, high=9), second.integers(length, high=9))
        assert torch.equal(first.permutation(length), second.permutation(length))


def test_two_draws_of_a_case_differ() -> None:
    make = InputMaker(CASE)

    assert not torch.equal(make.normal(8), make.normal(8))
    assert not torch.equal(make.normal(LARGE), make.normal(LARGE))


def test_an_input_that_is_changed_in_place_is_made_anew() -> None:
    changed = InputMaker(CASE).normal(LARGE)
    expected = changed.clone()
    changed.zero_()

    assert torch.equal(InputMaker(CASE).normal(LARGE), expected)


def test_a_large_normal_tensor_has_the_moments_of_a_normal_distribution() -> None:
    numbers = InputMaker(CASE).normal(3, FIRST_LENGTH, scale=2.0).double().numpy() / 2.0

    assert numbers.mean() == pytest.approx(0, abs=0.003)
    assert numbers.std() == pytest.approx(1, abs=0.003)
    assert (numbers**4).mean() == pytest.approx(3, abs=0.05)
    assert (np.abs(numbers) > 1.959964).mean() == pytest.approx(0.05, abs=0.001)


def test_a_large_uniform_tensor_fills_its_range_evenly() -> None:
    numbers = InputMaker(CASE).uniform(LARGE, low=-2.0, high=3.0)

    assert -2 <= float(numbers.min()) < float(numbers.max()) < 3
    shares = np.histogram(numbers.numpy(), bins=10, range=(-2, 3))[0] / LARGE
    assert shares == pytest.approx([0.1] * 10, abs=0.002)


def test_a_large_tensor_of_integers_has_all_values_equally_often() -> None:
    numbers = InputMaker(CASE).integers(LARGE, low=-3, high=4, dtype="int32")

    values, counts = torch.unique(numbers, return_counts=True)
    assert values.tolist() == [-3, -2, -1, 0, 1, 2, 3]
    assert (counts / LARGE).tolist() == pytest.approx([1 / 7] * 7, abs=0.002)


def test_no_repetition_of_a_draw_is_seen_in_the_tensor() -> None:
    numbers = InputMaker(CASE).normal(LARGE)

    for period in (FIRST_LENGTH, SECOND_LENGTH):
        later, earlier = numbers[period:], numbers[:-period]
        assert int((later == earlier).sum()) < 10


@pytest.mark.parametrize("length", [FIRST_LENGTH, FIRST_LENGTH + 1, 2 * FIRST_LENGTH])
def test_every_element_is_drawn(length: int) -> None:
    numbers = InputMaker(CASE).normal(length, dtype="bfloat16")

    assert numbers.shape == (length,)
    assert numbers[-3:].isfinite().all()
    assert numbers[-1] != 0


@pytest.mark.parametrize("draw", ["randn", "rand", "randint"])
def test_half_a_billion_numbers_cost_the_cpu_two_draws_of_a_million(
    draw: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = getattr(torch, draw)
    drawn_counts: list[int] = []

    def counted(*arguments: Any, **options: Any) -> torch.Tensor:
        numbers: torch.Tensor = original(*arguments, **options)
        assert numbers.device.type == "cpu"
        drawn_counts.append(numbers.numel())
        return numbers

    monkeypatch.setattr(torch, draw, counted)
    # the sizes of the largest bundled case, on a device without data
    make = InputMaker(CASE, "meta")
    shape = (4096, 128_256)
    if draw == "randint":
        numbers = make.integers(*shape, high=9)
    else:
        numbers = make.normal(*shape) if draw == "randn" else make.uniform(*shape)

    assert (numbers.device.type, numbers.shape) == ("meta", shape)
    assert sum(drawn_counts) == FIRST_LENGTH + SECOND_LENGTH


@pytest.mark.parametrize("draw", ["normal", "uniform", "integers"])
def test_the_number_of_operations_changes_no_number(
    draw: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = {"integers": {"high": 9}}.get(draw, {})
    # more than a part of several repetitions, and not a whole number of them
    length = 4 * FIRST_LENGTH + 17
    expected = getattr(InputMaker(CASE), draw)(length, **limits)

    for count in (2, 3, 16):
        monkeypatch.setitem(seeded_numbers._REPETITIONS, "cpu", count)
        assert torch.equal(getattr(InputMaker(CASE), draw)(length, **limits), expected)


class CountedOperations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


def test_half_a_billion_numbers_are_made_by_a_few_operations_of_a_device() -> None:
    with CountedOperations() as operations:  # type: ignore[no-untyped-call]
        InputMaker(CASE, "meta").normal(4096, 128_256)

    assert operations.count < 250


def test_upstream_gradients_are_drawn_where_the_outputs_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn_counts: list[int] = []
    original = torch.randn

    def counted(*arguments: Any, **options: Any) -> torch.Tensor:
        numbers: torch.Tensor = original(*arguments, **options)
        drawn_counts.append(numbers.numel())
        return numbers

    monkeypatch.setattr(torch, "randn", counted)
    output = torch.empty(LARGE, device="meta", requires_grad=True) * 2

    (gradient,) = UpstreamGradients(CASE).of({"out": output})

    assert (gradient.device.type, gradient.shape) == ("meta", (LARGE,))
    assert sum(drawn_counts) == FIRST_LENGTH + SECOND_LENGTH
