"""Random numbers that are equal on every device and cost one pass over memory.

A tensor of up to a million elements is drawn on the CPU. A larger one adds two such draws of prime
lengths, each repeated along the tensor: their sum repeats after 10^12 elements, and has the
distribution that the draws have. Only copies, sums and products of single elements are left for
the device, which round the same way everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

FIRST_LENGTH = 1_048_573
SECOND_LENGTH = 1_048_583
"""The primes next to 2^20: no row length divides them, so no two rows are equal."""
_REPETITIONS = {"cpu": 1}
"""Of the first draw in one operation: 4 MB fit a CPU's cache."""
_REPETITIONS_ELSEWHERE = 16
"""To start an operation takes a GPU longer than to move 4 MB."""


def normal_numbers(
    shape: tuple[int, ...],
    *,
    seed: int,
    device: str,
    dtype: torch.dtype,
    scale: float = 1.0,
) -> torch.Tensor:
    """Draw normally distributed numbers around 0 with standard deviation `scale`."""
    import torch

    def draw(length: int, generator: torch.Generator) -> torch.Tensor:
        return torch.randn(length, generator=generator)

    def combine(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        # the variance of a sum is the sum of the variances
        return (first + second) * (scale / math.sqrt(2))

    def finish(numbers: torch.Tensor) -> torch.Tensor:
        return numbers * scale

    return _numbers(
        shape=shape,
        seed=seed,
        device=device,
        dtype=dtype,
        draw=draw,
        combine=combine,
        finish=finish,
    )


def uniform_numbers(
    shape: tuple[int, ...],
    *,
    seed: int,
    device: str,
    dtype: torch.dtype,
    low: float,
    high: float,
) -> torch.Tensor:
    """Draw numbers that are uniformly distributed over [low, high)."""
    import torch

    def draw(length: int, generator: torch.Generator) -> torch.Tensor:
        return torch.rand(length, generator=generator)

    def combine(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        # the fraction of a sum of uniform numbers is uniform again
        return finish(torch.frac(first + second))

    def finish(numbers: torch.Tensor) -> torch.Tensor:
        return numbers * (high - low) + low

    return _numbers(
        shape=shape,
        seed=seed,
        device=device,
        dtype=dtype,
        draw=draw,
        combine=combine,
        finish=finish,
    )


def integer_numbers(
    shape: tuple[int, ...],
    *,
    seed: int,
    device: str,
    dtype: torch.dtype,
    low: int,
    high: int,
) -> torch.Tensor:
    """Draw integers that are uniformly distributed over low … high − 1."""
    import torch

    def draw(length: int, generator: torch.Generator) -> torch.Tensor:
        return torch.randint(low, high, (length,), generator=generator)

    def combine(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        return (first + second - 2 * low) % (high - low) + low

    def finish(numbers: torch.Tensor) -> torch.Tensor:
        return numbers

    return _numbers(
        shape=shape,
        seed=seed,
        device=device,
        dtype=dtype,
        draw=draw,
        combine=combine,
        finish=finish,
    )


def _numbers(
    shape: tuple[int, ...],
    seed: int,
    device: str,
    dtype: torch.dtype,
    draw: Callable[[int, torch.Generator], torch.Tensor],
    combine: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    finish: Callable[[torch.Tensor], torch.Tensor],
) -> torch.Tensor:
    """Draw on the CPU what fits one draw, and combine two draws for what does not."""
    import torch

    generator = torch.Generator().manual_seed(seed)
    length = math.prod(shape)
    if length <= FIRST_LENGTH:
        numbers = finish(draw(length, generator))
        return numbers.to(device=device, dtype=dtype, copy=True).view(shape)
    count = _REPETITIONS.get(device, _REPETITIONS_ELSEWHERE)
    first = draw(FIRST_LENGTH, generator).to(device).repeat(count)
    # a slice of the second draw may start anywhere and then go on from its beginning
    second = draw(SECOND_LENGTH, generator).to(device).repeat(count + 1)
    result = torch.empty(length, device=device, dtype=dtype)
    for part, second_start in _parts(result, len(first)):
        second_part = second[second_start : second_start + len(part)]
        part.copy_(combine(first[: len(part)], second_part))
    return result.view(shape)


def _parts(result: torch.Tensor, part_length: int) -> Iterator[tuple[torch.Tensor, int]]:
    """The parts that one operation fills, each with its start in the second draw."""
    for start in range(0, len(result), part_length):
        yield result[start : start + part_length], start % SECOND_LENGTH
