"""Deviations against a slow twin that goes through the elements one by one."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from roofwatch.collector.accuracy import deviation as of_deviation
from roofwatch.collector.accuracy.deviation import deviation, different_bytes, has_same_bytes, wrong_elements

NUMBERS = st.one_of(
    st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf, 1e-300, 1e150]),
    st.floats(min_value=-100, max_value=100, allow_nan=False),
)
PAIRS = st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=20)


@pytest.fixture(autouse=True, scope="module")
def pieces_of_three() -> Iterator[None]:
    """Every tensor is of several pieces."""
    before = dict(of_deviation._PIECE_ELEMENTS)
    of_deviation._PIECE_ELEMENTS["cpu"] = 3
    yield
    of_deviation._PIECE_ELEMENTS.update(before)


def is_unlike(expected: float, actual: float) -> bool:
    is_same = expected == actual or (math.isnan(expected) and math.isnan(actual))
    return not is_same and not (math.isfinite(expected) and math.isfinite(actual))


def error(expected: float, actual: float) -> float:
    return abs(actual - expected) if math.isfinite(expected) and math.isfinite(actual) else 0.0


def rms(values: list[float]) -> float:
    finite = [value for value in values if math.isfinite(value)]
    return math.sqrt(math.fsum(value * value for value in finite) / len(finite)) if finite else 0.0


@settings(max_examples=60, deadline=None)
@given(PAIRS)
def test_a_deviation_is_what_a_look_at_each_element_tells(pairs: list[tuple[float, float]]) -> None:
    expected, actual = (list(values) for values in zip(*pairs, strict=True))

    found = deviation(torch.tensor(expected, dtype=torch.float64), torch.tensor(actual, dtype=torch.float64))

    scale = rms(expected)
    unlike = [position for position, pair in enumerate(pairs) if is_unlike(*pair)]
    relative = [
        error(one, other) / (abs(one) + scale)
        if error(one, other) and abs(one) + scale
        else 1e30 * bool(error(one, other))
        for one, other in pairs
        if math.isfinite(one)
    ]
    assert (found.unlike_count, found.first_unlike) == (len(unlike), unlike[0] if unlike else None)
    assert found.max_abs_error == pytest.approx(max(error(*pair) for pair in pairs))
    assert found.errors.elementwise == pytest.approx(min(max(relative, default=0.0), 1e30))
    assert found.is_all_zero == (not any(value for value in actual) and scale > 0)
    root = math.sqrt(math.fsum(error(*pair) ** 2 for pair in pairs) / len(pairs))
    assert found.errors.rmse_ratio == pytest.approx(min(root / max(scale, 1e-30), 1e30))


@settings(max_examples=60, deadline=None)
@given(PAIRS)
def test_what_is_unlike_is_wrong_and_the_worst(pairs: list[tuple[float, float]]) -> None:
    expected, actual = (torch.tensor(values, dtype=torch.float64) for values in zip(*pairs, strict=True))

    found = wrong_elements(expected, actual, 1e-3)

    unlike = {position for position, pair in enumerate(pairs) if is_unlike(*pair)}
    assert unlike <= set(found.mask.nonzero().flatten().tolist())
    assert set(found.worst[: len(unlike)]) <= unlike or len(unlike) == 0
    assert set(found.worst) <= set(found.mask.nonzero().flatten().tolist())


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float8_e4m3fn, torch.bool, torch.int32])
def test_bytes_are_the_same_where_none_is_different(dtype: torch.dtype) -> None:
    before = torch.tensor([0.0, 1.0, 2.0, 1.0, 0.0]).to(dtype)
    after = before.clone()
    after[3] = 0.0

    assert has_same_bytes(before, before.clone())
    assert not has_same_bytes(before, after)
    assert different_bytes(before, after).tolist() == [False, False, False, True, False]


def test_not_a_number_is_the_same_bytes_and_minus_zero_is_not() -> None:
    nans = torch.tensor([math.nan, 0.0])

    assert has_same_bytes(nans, nans.clone())
    assert not has_same_bytes(nans, torch.tensor([math.nan, -0.0]))
