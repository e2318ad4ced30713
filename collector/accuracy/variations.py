"""Inputs that a candidate has not seen: other shapes,
values and memory layouts than a spec lists.
"""

import math
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from typing import Any

import torch

from roofwatch.collector.accuracy.layouts import rearranged
from roofwatch.model.check_report import Arrangement
from roofwatch.spec import Case

_MAX_LAYOUTS = 8
_OUTLIERS = 3
"""Too few to change a mean, enough to show in a maximum."""


class Test(StrEnum):
    """What a trial is about."""

    LISTED = "listed case"
    SHAPE = "unseen shape"
    LAYOUT = "memory layout"
    VALUES = "values"
    TIES = "equal values"
    TIMED = "timed call"


@dataclass(frozen=True)
class Trial:
    """One case and how its inputs are changed."""

    test: Test
    case: Case
    detail: str = ""
    change: Callable[[str, Any], Any] = field(default=lambda _name, value: value, repr=False)
    """Given the name and value of an input."""

    @property
    def name(self) -> str:
        return f"{self.case.id} {self.detail}".strip()


def unseen_shapes(cases: Sequence[Case], listed: frozenset[str], *, count: int) -> Iterator[Trial]:
    """Cases at lengths that the spec does not list: one past a tile, odd, prime,
    other batch sizes.
    """
    # The candidate must not be able to predict what it is tried with.
    random = secrets.SystemRandom()
    seen = set(listed)
    # A case with few lengths may have no other shapes.
    for attempt in range(10 * count):
        case = random.choice(cases)
        numbers = [name for name, length in case.shape if isinstance(length, int) and length > 1]
        if not numbers:
            continue
        if attempt % 4 == 3:
            chosen = set(numbers)
        else:
            chosen = {random.choice(numbers)}
        changed = _with_other_lengths(case, chosen, random)
        if changed.id not in seen:
            seen.add(changed.id)
            yield Trial(Test.SHAPE, changed)
        if len(seen) == len(listed) + count:
            return


def _with_other_lengths(case: Case, chosen: set[str], random: secrets.SystemRandom) -> Case:
    """The case with a random other length in each of the chosen dims."""
    shape: list[tuple[str, int | str]] = []
    for name, length in case.shape:
        if name in chosen and isinstance(length, int):
            shape.append((name, random.choice(_other_lengths(length))))
        else:
            shape.append((name, length))
    return replace(case, shape=tuple(shape))


def _other_lengths(length: int) -> list[int]:
    """Lengths around a tile and around the declared length, where a mask may be missing."""
    # The largest power of two up to the length is the likely tile.
    tile = 1 << (length.bit_length() - 1)
    half = max(2, length // 2)
    primes = [*filter(_is_prime, range(half, length + 1))]
    return [
        tile // 2 + 1,
        length - 1,
        length + 1,
        max(1, length // 2),
        *primes[-1:],
        *primes[:1],
    ]


def _is_prime(number: int) -> bool:
    return all(number % divisor for divisor in range(2, math.isqrt(number) + 1))


def other_values(case: Case) -> Iterator[Trial]:
    """The case with other values in its tensors, and with other numbers beside them.

    NaN and infinity are not tried: right kernels differ there, for example in how they mask a tile.
    """
    # Powers of two: the results of most operations scale without rounding.
    changes: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "large": lambda wide: wide * 2.0**7,
        "tiny": lambda wide: wide * 2.0**-7,
        "zeros": torch.zeros_like,
        "ties": lambda wide: (wide * 2).round() / 2,
        "shifted": lambda wide: wide + 8.0,
        "outlying": _with_outliers,
    }
    for name, change in changes.items():
        # Equal values have several right orders when sorted.
        if name in {"zeros", "ties"}:
            test = Test.TIES
        else:
            test = Test.VALUES
        yield Trial(
            test=test,
            case=case,
            detail=f"with {name} values",
            change=partial(_change_tensor, change),
        )
    # A candidate may have a number of the listed cases built in.
    factor = secrets.SystemRandom().uniform(0.6, 0.9)

    def change_number(_name: str, value: Any) -> Any:
        if isinstance(value, float):
            return value * factor
        return value

    yield Trial(
        test=Test.VALUES,
        case=case,
        detail="with other numbers",
        change=change_number,
    )


def _with_outliers(wide: torch.Tensor) -> torch.Tensor:
    """A few large values at random places."""
    if not wide.numel():
        return wide
    positions = torch.randint(wide.numel(), (_OUTLIERS,))
    changed = wide.flatten().index_fill(0, positions, 2.0**7)
    return changed.view(wide.shape)


def _change_tensor(change: Callable[[torch.Tensor], torch.Tensor], _name: str, value: Any) -> Any:
    is_changed = isinstance(value, torch.Tensor) and value.is_floating_point()
    if is_changed:
        return change(value.to(torch.float64)).to(value.dtype)
    return value


def other_layouts(cases: Mapping[Case, Mapping[str, Any]]) -> Iterator[Trial]:
    """Cases, given with their inputs, with one of the matrices in another memory layout."""
    layouts: list[tuple[Case, str, Arrangement]] = []
    for case, inputs in cases.items():
        for name, tensor in inputs.items():
            if _is_matrix(tensor):
                layouts.append((case, name, Arrangement.ROW_STRIDED))
                layouts.append((case, name, Arrangement.TRANSPOSED))
    # a random choice that a candidate cannot know
    count = min(_MAX_LAYOUTS, len(layouts))
    for case, name, arrangement in secrets.SystemRandom().sample(layouts, count):
        detail = f"with {name} {arrangement.replace('_', '-')} in memory"
        yield Trial(
            test=Test.LAYOUT,
            case=case,
            detail=detail,
            change=partial(_rearrange, name, arrangement),
        )


def _is_matrix(value: Any) -> bool:
    """Whether a value has two dims that can be rearranged."""
    if not isinstance(value, torch.Tensor) or value.ndim < 2:
        return False
    return min(value.shape[-2:]) > 1


def _rearrange(
    name: str,
    arrangement: Arrangement,
    input_name: str,
    value: Any,
) -> Any:
    """Rearrange the input of one name; the others stay."""
    if input_name == name:
        return rearranged(value, arrangement)
    return value
