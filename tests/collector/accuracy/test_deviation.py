"""Deviations compared with a slow version that visits each element, and descriptions of planted
patterns.
"""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from roofwatch.collector.accuracy.deviation import (
    count_different_bits,
    deviation,
    has_same_bits,
    wrong_elements,
)
from roofwatch.collector.accuracy.error_pattern import describe_values, describe_where

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

    found = deviation(
        torch.tensor(expected, dtype=torch.float64), torch.tensor(actual, dtype=torch.float64)
    )

    scale = rms(expected)
    nonfinite = [position for position, pair in enumerate(pairs) if is_nonfinite(*pair)]
    relative = [
        error(one, other) / (abs(one) + scale)
        if error(one, other) and abs(one) + scale
        else 1e30 * bool(error(one, other))
        for one, other in pairs
        if math.isfinite(one)
    ]
    assert (found.nonfinite_count, found.first_nonfinite) == (
        len(nonfinite),
        nonfinite[0] if nonfinite else None,
    )
    assert found.max_abs_error == pytest.approx(max(error(*pair) for pair in pairs))
    assert found.errors.elementwise == pytest.approx(min(max(relative, default=0.0), 1e30))
    assert found.is_all_zero == (not any(value for value in actual) and scale > 0)
    root = math.sqrt(math.fsum(error(*pair) ** 2 for pair in pairs) / len(pairs))
    assert found.errors.rmse_ratio == pytest.approx(min(root / max(scale, 1e-30), 1e30))


@settings(max_examples=60, deadline=None)
@given(PAIRS)
def test_nonfinite_elements_are_the_worst(pairs: list[tuple[float, float]]) -> None:
    expected, actual = (
        torch.tensor(values, dtype=torch.float64) for values in zip(*pairs, strict=True)
    )

    mask, worst = wrong_elements(expected, actual, 1e-3)

    nonfinite = {position for position, pair in enumerate(pairs) if is_nonfinite(*pair)}
    marked = set(mask.nonzero().flatten().tolist())
    assert nonfinite <= marked
    assert set(worst[: len(nonfinite)]) <= nonfinite
    assert set(worst) <= marked


BEYOND_HALF = torch.tensor([70_000.0, -70_000.0, 60_000.0, 70_000.0], dtype=torch.float64)
"""The third number lies within the range of float16, the others beyond it."""


def test_infinity_is_right_beyond_the_range_of_the_result() -> None:
    overflowed = torch.tensor([math.inf, -math.inf, 60_000.0, math.inf], dtype=torch.float16)
    assert deviation(BEYOND_HALF, overflowed).nonfinite_count == 0
    assert deviation(BEYOND_HALF, overflowed.float()).nonfinite_count == 3


def test_infinity_is_wrong_within_the_range_or_with_the_other_sign() -> None:
    wrong_sign = torch.tensor([-math.inf, -math.inf, math.inf, math.nan], dtype=torch.float16)
    mask, _worst = wrong_elements(BEYOND_HALF, wrong_sign, limit=0.1)
    assert mask.tolist() == [True, False, True, True]


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.bfloat16, torch.float8_e4m3fn, torch.bool, torch.int32]
)
def test_different_bits_are_counted(dtype: torch.dtype) -> None:
    before = torch.tensor([0.0, 1.0, 2.0, 1.0, 0.0]).to(dtype)
    after = before.clone()
    after[3] = 0.0

    assert has_same_bits(before, before.clone())
    assert not has_same_bits(before, after)
    assert count_different_bits(before, after) == 1
    assert has_same_bits(before[1].expand(3), before[1].repeat(3))


# --- descriptions


def marked(*shape: int, at: object) -> torch.Tensor:
    mask = torch.zeros(shape, dtype=torch.bool)
    mask[at] = True  # type: ignore[index]
    return mask


ROWS, COLS = torch.arange(48)[:, None], torch.arange(64)[None, :]
ALL = slice(None)


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        (marked(3, 5, at=...), "every element"),
        (marked(256, at=slice(64, 128)), "elements 64 to 127 (one tile of 64)"),
        (marked(8, 256, at=(ALL, slice(0, 32))), "columns 0 to 31 (one tile of 32)"),
        (
            marked(64, 64, at=(slice(16, 32), slice(48, 64))),
            "rows 16 to 31 (one tile of 16), from column 48 to the end (one tile of 16)",
        ),
        (
            marked(3, 1000, at=(ALL, slice(960, 1000))),
            "from column 960 to the end (after the last whole tile of 64: is a mask missing?)",
        ),
        (
            marked(96, at=slice(64, 96)),
            "from element 64 to the end (one tile of 32 or after the last whole tile of 64: is a "
            "mask missing?)",
        ),
        (marked(100, at=slice(37, 100)), "from element 37 to the end"),
        (marked(100, at=slice(3, 40)), "elements 3 to 39"),
        (marked(16, 64, at=5), "row 5"),
        (marked(16, 64, at=(ALL, 63)), "column 63"),
        (marked(64, 8, at=[3, 17, 40]), "rows 3, 17, 40"),
        (marked(8, 64, at=(ALL, slice(1, None, 4))), "columns i with i % 4 == 1"),
        (torch.arange(128).remainder(16).ge(8).expand(4, 128), "columns i with 8 <= i % 16 < 16"),
        (COLS > ROWS, "the triangle where column - row >= 1 (a causal mask?)"),
        (COLS <= ROWS, "the triangle where column - row <= 0 (a causal mask?)"),
        (COLS == ROWS + 2, "the diagonal where column - row == 2"),
        (
            (COLS >= ROWS - 3) & (COLS <= ROWS + 1),
            "the band where -3 <= column - row <= 1 (a sliding window?)",
        ),
        (
            torch.stack([COLS > ROWS, COLS < 0 * ROWS, COLS > ROWS]),
            "the triangle where column - row >= 1 (a causal mask?), in 2 of 3 matrices",
        ),
    ],
)
def test_a_planted_pattern_is_named(mask: torch.Tensor, words: str) -> None:
    assert describe_where(mask) == words


def test_the_tail_of_a_flattened_tensor_is_named() -> None:
    mask = torch.zeros(7 * 100, dtype=torch.bool)
    mask[512:] = True
    assert describe_where(mask.reshape(7, 100)) == (
        "the flattened tensor, from element 512 to the end (after the last whole tile of 512: is "
        "a mask missing?)"
    )


def test_a_few_correct_elements_do_not_hide_a_tile() -> None:
    by_chance = torch.rand(64, 256, generator=torch.Generator().manual_seed(0)) < 0.05
    mask = marked(64, 256, at=(ALL, slice(64, 128))) & ~by_chance
    assert describe_where(mask).endswith("% of columns 64 to 127 (one tile of 64)")


@settings(deadline=None)
@given(shape=st.lists(st.integers(1, 7), min_size=1, max_size=3), bits=st.integers(min_value=1))
def test_every_set_of_elements_has_a_description(shape: list[int], bits: int) -> None:
    count = int(torch.tensor(shape).prod())
    mask = torch.tensor([bool(bits >> position & 1) for position in range(count)]).reshape(shape)
    mask.reshape(-1)[bits % count] = True
    assert describe_where(mask)


EXPECTED = torch.randn(32, 32, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
LAST_TILE = marked(32, 32, at=(ALL, slice(16, 32)))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (torch.full_like(EXPECTED, torch.nan), "NaN: never written"),
        (torch.full_like(EXPECTED, torch.inf), "infinite: an overflow"),
        (torch.zeros_like(EXPECTED), "zero"),
        (torch.full_like(EXPECTED, 0.5), "always 0.5"),
        (EXPECTED * 1.4427, "1.443 times the expected value"),
        (-EXPECTED, "the expected value with the opposite sign"),
        (EXPECTED.roll(1, 1), "the values that belong one index before along dim 1"),
        (EXPECTED.roll(-1, 0), "the values that belong one index after along dim 0"),
        (EXPECTED.mT, "the values that belong at the transposed index"),
        (EXPECTED + 0.06 * EXPECTED.sign().roll(3, 1), "close to the expected values"),
    ],
)
def test_wrong_values_are_recognised(wrong: torch.Tensor, words: str) -> None:
    got = torch.where(LAST_TILE, wrong, EXPECTED).float()
    assert (describe_values(EXPECTED, got, LAST_TILE) or "").startswith(words)


def test_noise_is_not_explained() -> None:
    noise = torch.randn(32, 32, generator=torch.Generator().manual_seed(4))
    assert describe_values(EXPECTED, noise, torch.ones(32, 32, dtype=torch.bool)) is None


def test_a_softmax_that_sums_what_a_mask_leaves_out_has_one_factor_in_each_row() -> None:
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(4, 1000, generator=generator, dtype=torch.float64)
    exponentials = (x - x.amax(-1, keepdim=True)).exp()
    padding = 24 * (-x.amax(-1, keepdim=True)).exp()
    expected = exponentials / exponentials.sum(-1, keepdim=True)
    actual = (exponentials / (exponentials.sum(-1, keepdim=True) + padding)).float()

    words = describe_values(expected, actual, torch.ones(4, 1000, dtype=torch.bool))

    assert words is not None
    assert words.endswith("with one factor in each row: a sum or maximum of the row is wrong")
    noise = expected * (1 + 0.02 * torch.randn(4, 1000, generator=generator, dtype=torch.float64))
    assert "one factor" not in str(describe_values(expected, noise, torch.ones_like(noise).bool()))
