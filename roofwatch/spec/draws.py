"""What was drawn for the inputs of one case, for those that are made of it next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

MAX_BYTES = 2**30

Key = tuple[object, ...]
"""What was asked for: the kind of numbers, their count and range."""


@dataclass
class _Draw:
    key: Key
    numbers: torch.Tensor | None
    """None where there was no room."""
    state_after: torch.Tensor
    """Of the generator."""


class Draws:
    """Drawing random numbers takes longer than all else that inputs take, and is the same each time: a case's
    implementations and blocks all get the numbers of its first inputs. Of another case they are drawn anew.

    Args:
        max_bytes: What is beyond is not kept.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._case_id: str | None = None
        self._draws: list[_Draw] = []

    def begin(self, case_id: str) -> None:
        """Inputs of a case are made from the start."""
        if case_id != self._case_id:
            self._case_id = case_id
            self._draws = []

    def at(self, position: int, key: Key, generator: torch.Generator, draw: Callable[[], torch.Tensor]) -> torch.Tensor:
        """What is drawn at a position, the first being 0: never to be changed.

        Args:
            position: How many were drawn before.
            key: What is asked for; where it is something else than last time, it is drawn.
            generator: Left where `draw` leaves it, if that is called.
            draw: Draws from the generator.
        """
        known = self._draws[position] if position < len(self._draws) else None
        if known is not None and known.key == key and known.numbers is not None:
            return known.numbers
        if position:
            generator.set_state(self._draws[position - 1].state_after)
        numbers = draw()
        if known is None or known.key != key:
            del self._draws[position:]
            self._draws.append(_Draw(key, numbers if self._has_room(numbers) else None, generator.get_state()))
        return numbers

    def _has_room(self, numbers: torch.Tensor) -> bool:
        kept = sum(draw.numbers.nbytes for draw in self._draws if draw.numbers is not None)
        return kept + numbers.nbytes <= self._max_bytes
