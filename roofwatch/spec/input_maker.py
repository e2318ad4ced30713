"""The inputs of a case: the same numbers at every commit and on every device."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from roofwatch.spec.case import Case
from roofwatch.spec.draws import Draws

if TYPE_CHECKING:
    import torch


class InputMaker:
    """Makes a case's seeded inputs on a device. Random by default: zeros and low-entropy data run faster than real
    data does (NVIDIA/cutlass#2004).

    Args:
        case: Seeds the numbers and says the dtype.
        device: Where the tensors are put; `make.device` for what is made in another way.
        only_integers: Leave floating-point tensors as the memory is. Enough to compile for a case, and a model's
            weights then take address space but neither memory nor time.
        draws: Keeps what is drawn for whoever makes the same case's inputs next; nothing is kept if left out.
    """

    def __init__(
        self, case: Case, device: str = "cpu", *, only_integers: bool = False, draws: Draws | None = None
    ) -> None:
        import torch

        self._case = case
        self.device = device
        self._only_integers = only_integers
        # drawn on the CPU, so that every device sees the same numbers
        self._generator = torch.Generator(device="cpu").manual_seed(case.seed)
        self._draws = draws or Draws(max_bytes=0)
        self._draws.begin(case.id)
        self._drawn_count = 0

    @property
    def rank(self) -> int:
        """Which of a case's ranks this process is, from 0 on: its rank in torch.distributed's default group. Every
        rank draws the same numbers, so an input holds the data of all, and an input `rank` says which are its own.
        """
        from torch import distributed

        return distributed.get_rank() if distributed.is_available() and distributed.is_initialized() else 0

    @property
    def only_integers(self) -> bool:
        """Whether floating-point tensors are left as the memory is: then nothing need be worked out from them."""
        return self._only_integers

    def _drawn(self, key: tuple[object, ...], draw: Callable[[], torch.Tensor], dtype: str | None) -> torch.Tensor:
        import torch

        numbers = self._draws.at(self._drawn_count, key, self._generator, draw)
        self._drawn_count += 1
        # a copy always: what is kept must not change with an input
        return numbers.to(device=self.device, dtype=getattr(torch, dtype or self._case.dtype), copy=True)

    def _unfilled(self, shape: tuple[int, ...], dtype: str | None) -> torch.Tensor:
        import torch

        return torch.empty(shape, device=self.device, dtype=getattr(torch, dtype or self._case.dtype))

    def normal(self, *shape: int, scale: float = 1.0, dtype: str | None = None) -> torch.Tensor:
        """Normally distributed around 0 with standard deviation `scale`."""
        import torch

        if self._only_integers:
            return self._unfilled(shape, dtype)
        return self._drawn(
            ("normal", shape, scale), lambda: torch.randn(shape, generator=self._generator) * scale, dtype
        )

    def uniform(self, *shape: int, low: float = -1.0, high: float = 1.0, dtype: str | None = None) -> torch.Tensor:
        """Uniformly distributed over [low, high)."""
        import torch

        if self._only_integers:
            return self._unfilled(shape, dtype)
        return self._drawn(
            ("uniform", shape, low, high),
            lambda: torch.rand(shape, generator=self._generator) * (high - low) + low,
            dtype,
        )

    def integers(self, *shape: int, high: int, low: int = 0, dtype: str = "int64") -> torch.Tensor:
        """Uniformly distributed over low … high − 1; always filled, since launchers read sizes and indices."""
        import torch

        return self._drawn(
            ("integers", shape, low, high), lambda: torch.randint(low, high, shape, generator=self._generator), dtype
        )

    def permutation(self, length: int, dtype: str = "int64") -> torch.Tensor:
        """The numbers 0 … length − 1, shuffled."""
        import torch

        return self._drawn(("permutation", length), lambda: torch.randperm(length, generator=self._generator), dtype)
