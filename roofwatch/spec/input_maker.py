"""Seeded inputs of a case: the same numbers at every commit and on every device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING

from roofwatch.spec.case import Case

if TYPE_CHECKING:
    import torch


class Draws:
    """Keeps up to `max_bytes` of random numbers of the last case: drawing takes most of the time to
    make inputs.
    """

    def __init__(self, max_bytes: int = 2**30) -> None:
        self._max_bytes = max_bytes
        self._case_id: str | None = None
        self._numbers: dict[int, torch.Tensor] = {}

    def at(self, case_id: str, position: int, draw: Callable[[], torch.Tensor]) -> torch.Tensor:
        """Return the numbers of a case at a position; do not change them."""
        if case_id != self._case_id:
            self._case_id, self._numbers = case_id, {}
        if position in self._numbers:
            return self._numbers[position]
        numbers = draw()
        if sum(each.nbytes for each in self._numbers.values()) + numbers.nbytes <= self._max_bytes:
            self._numbers[position] = numbers
        return numbers


class Role(StrEnum):
    """What an operation does with an input, which decides the values that it is checked with."""

    VALUES = "values"
    LOGITS = "logits"
    """Passed to a softmax."""
    SCORES = "scores"
    """Multiplied to attention scores: queries and keys."""
    GATES = "gates"
    """Passed to a sigmoid, SiLU, GELU or tanh."""
    TERMS = "terms"
    """Added up."""
    WEIGHTS = "weights"
    """Learned parameters, which keep their distribution."""


class InputMaker:
    """Makes a case's seeded inputs on a device.

    Random numbers, because zeros and low-entropy data run faster than real data
    (NVIDIA/cutlass#2004).

    Args:
        case: Provides the seed and the dtype.
        device: Of the tensors; use `make.device` for tensors made in another way.
        only_integers: Leave floating-point tensors uninitialised, which is enough to compile for a
            case; a model's weights then take address space, but neither memory nor time. Compute
            nothing from them.
        draws: Keeps random numbers for the next inputs of the same case.
    """

    def __init__(
        self,
        case: Case,
        device: str = "cpu",
        *,
        only_integers: bool = False,
        draws: Draws | None = None,
    ) -> None:
        self._case = case
        self.device = device
        self.only_integers = only_integers
        self._draws = draws or Draws(max_bytes=0)
        self._drawn_count = 0
        self._made: list[tuple[torch.Tensor, Role]] = []

    def roles_of(self, inputs: Mapping[str, object]) -> dict[str, Role]:
        """Roles of inputs that are returned as they were made; of others nothing is known."""
        roles: dict[str, Role] = {}
        for name, value in inputs.items():
            for tensor, role in self._made:
                if value is tensor:
                    roles[name] = role
        return roles

    @property
    def rank(self) -> int:
        """Rank of this process in torch.distributed's default group, from 0.

        Every rank draws the same numbers. An input holds the data of all ranks, and an input `rank`
        selects its part.
        """
        from torch import distributed

        return (
            distributed.get_rank()
            if distributed.is_available() and distributed.is_initialized()
            else 0
        )

    def normal(self, *shape: int, scale: float = 1.0, dtype: str | None = None) -> torch.Tensor:
        """Normally distributed around 0 with standard deviation `scale`.

        `roofwatch check` also tries other values, by the input's role. The methods below draw the
        same numbers for inputs with a special role.
        """
        return self._normal(shape, scale, dtype, Role.VALUES)

    def logits(self, *shape: int, scale: float = 1.0, dtype: str | None = None) -> torch.Tensor:
        """Normal numbers for a softmax; also checked where one dominates, and with -inf."""
        return self._normal(shape, scale, dtype, Role.LOGITS)

    def scores(self, *shape: int, scale: float = 1.0, dtype: str | None = None) -> torch.Tensor:
        """Normal numbers for queries and keys; also checked with sharp and uniform attention."""
        return self._normal(shape, scale, dtype, Role.SCORES)

    def gates(self, *shape: int, scale: float = 1.0, dtype: str | None = None) -> torch.Tensor:
        """Normal numbers for a sigmoid, SiLU, GELU or tanh; also checked where it saturates."""
        return self._normal(shape, scale, dtype, Role.GATES)

    def terms(self, *shape: int, scale: float = 1.0, dtype: str | None = None) -> torch.Tensor:
        """Normal numbers to add up; also checked where they cancel."""
        return self._normal(shape, scale, dtype, Role.TERMS)

    def weights(self, *shape: int, scale: float = 1.0, dtype: str | None = None) -> torch.Tensor:
        """Normal numbers for learned parameters, which are checked with no other values."""
        return self._normal(shape, scale, dtype, Role.WEIGHTS)

    def _normal(
        self, shape: tuple[int, ...], scale: float, dtype: str | None, role: Role
    ) -> torch.Tensor:
        import torch

        if self.only_integers:
            return self._uninitialised(shape, dtype)
        numbers = self._drawn(
            lambda generator: torch.randn(shape, generator=generator) * scale, dtype
        )
        self._made.append((numbers, role))
        return numbers

    def uniform(
        self, *shape: int, low: float = -1.0, high: float = 1.0, dtype: str | None = None
    ) -> torch.Tensor:
        """Uniformly distributed over [low, high)."""
        import torch

        if self.only_integers:
            return self._uninitialised(shape, dtype)
        return self._drawn(
            lambda generator: torch.rand(shape, generator=generator) * (high - low) + low, dtype
        )

    def integers(self, *shape: int, high: int, low: int = 0, dtype: str = "int64") -> torch.Tensor:
        """Uniformly distributed over low … high − 1; always initialised, because launchers read
        sizes and indices.
        """
        import torch

        return self._drawn(
            lambda generator: torch.randint(low, high, shape, generator=generator), dtype
        )

    def permutation(self, length: int, dtype: str = "int64") -> torch.Tensor:
        """The numbers 0 … length − 1, shuffled."""
        import torch

        return self._drawn(lambda generator: torch.randperm(length, generator=generator), dtype)

    def mask(self, *shape: int, share: float = 0.5) -> torch.Tensor:
        """Booleans; about `share` of them are true."""
        return self.integers(*shape, high=2**30) < int(share * 2**30)

    def routing(self, tokens: int, experts: int, top_k: int, load: str = "uniform") -> torch.Tensor:
        """Draw `top_k` different ones of the experts for each token, [tokens, top_k] int32.

        The load is `uniform`; `zipf`, where that of the n-th expert is proportional to 1 / n; or
        `all_to_one`, where all tokens choose the same experts. Source of the Gumbel top-k method:
        Kool et al., Stochastic beams and where to find them, 2019 (arXiv 1903.06059).
        """
        import torch

        log_rank = torch.log(self.permutation(experts).cpu() + 1.0)
        if load == "all_to_one":
            scores = -log_rank.expand(tokens, experts)
        else:
            # from integers: floating-point inputs may be left uninitialised
            uniform = (self.integers(tokens, experts, high=2**30).cpu().double() + 0.5) / 2**30
            gumbel = -torch.log(-torch.log(uniform))
            scores = gumbel - log_rank if load == "zipf" else gumbel
        return scores.topk(top_k, dim=1).indices.to(device=self.device, dtype=torch.int32)

    def _drawn(
        self, draw: Callable[[torch.Generator], torch.Tensor], dtype: str | None
    ) -> torch.Tensor:
        import torch

        # on the CPU, for equal numbers on every device; a seed per draw, because kept numbers are
        # not drawn again
        generator = torch.Generator().manual_seed(self._case.seed - self._drawn_count)
        numbers = self._draws.at(self._case.id, self._drawn_count, lambda: draw(generator))
        self._drawn_count += 1
        # always a copy: an implementation may change its input
        return numbers.to(
            device=self.device, dtype=getattr(torch, dtype or self._case.dtype), copy=True
        )

    def _uninitialised(self, shape: tuple[int, ...], dtype: str | None) -> torch.Tensor:
        import torch

        return torch.empty(
            shape, device=self.device, dtype=getattr(torch, dtype or self._case.dtype)
        )
