"""Deviations compared with a slow version that visits each element."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from roofwatch.collector.accuracy.deviation import count_different_bits, deviation, has_same_bits, wrong_elements

NUMBERS = st.one_of(
    st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf, 1e-300, 1e150]),
    st.floats(min_value=-100, max_value=100, allow_nan=False),
)
PAIRS = st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=20)


def is_nonfinite(expected: float, actual: float) -> bool:
    is_same = expected == actual or (math.isnan(expected) and math.isnan(actual))
    return not is_same and not (math.isfinite(expected) and math.isfinite(actual))


def error(expected: float, actual: float) -> float:
    return abs(actual - expected) if math.isfinite(expected) and math.isfinite(actual) else 0.0


def rms(values: list[float]) -> float:
    finite = [value for value in values if math.isfinite(value)]
    return math.sqrt(math.fsum(value * value for value in finite) / len(finite)) if finite else 0.0


@settings(max_examples=60, deadline=None)
@given(PAIRS)
def test_a_deviation_equals_that_of_a_loop_over_elements(pairs: list[tuple[float, float]]) -> None:
    expected, actual = (list(values) for values in zip(*pairs, strict=True))

    found = deviation(torch.tensor(expected, dtype=torch.float64), torch.tensor(actual, dtype=torch.float64))

    scale = rms(expected)
    nonfinite = [position for position, pair in enumerate(pairs) if is_nonfinite(*pair)]
    relative = [
        error(one, other) / (abs(one) + scale)
        if error(one, other) and abs(one) + scale
        else 1e30 * bool(error(one, other))
        for one, other in pairs
        if math.isfinite(one)
    ]
    assert (found.nonfinite_count, found.first_nonfinite) == (len(nonfinite), nonfinite[0] if nonfinite else None)
    assert found.max_abs_error == pytest.approx(max(error(*pair) for pair in pairs))
    assert found.errors.elementwise == pytest.approx(min(max(relative, default=0.0), 1e30))
    assert found.is_all_zero == (not any(value for value in actual) and scale > 0)
    root = math.sqrt(math.fsum(error(*pair) ** 2 for pair in pairs) / len(pairs))
    assert found.errors.rmse_ratio == pytest.approx(min(root / max(scale, 1e-30), 1e30))


@settings(max_examples=60, deadline=None)
@given(PAIRS)
def test_nonfinite_elements_are_the_worst(pairs: list[tuple[float, float]]) -> None:
    expected, actual = (torch.tensor(values, dtype=torch.float64) for values in zip(*pairs, strict=True))

    mask, worst = wrong_elements(expected, actual, 1e-3)

    nonfinite = {position for position, pair in enumerate(pairs) if is_nonfinite(*pair)}
    marked = set(mask.nonzero().flatten().tolist())
    assert nonfinite <= marked
    assert set(worst[: len(nonfinite)]) <= nonfinite
    assert set(worst) <= marked


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float8_e4m3fn, torch.bool, torch.int32])
def test_different_bits_are_counted(dtype: torch.dtype) -> None:
    before = torch.tensor([0.0, 1.0, 2.0, 1.0, 0.0]).to(dtype)
    after = before.clone()
    after[3] = 0.0

    assert has_same_bits(before, before.clone())
    assert not has_same_bits(before, after)
    assert count_different_bits(before, after) == 1
