"""Seeded inputs of a case: the same numbers at every commit and on every device."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import TYPE_CHECKING

from roofwatch.spec.case import Case
from roofwatch.spec.seeded_numbers import integer_numbers, normal_numbers, uniform_numbers

if TYPE_CHECKING:
    import torch


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
    MASK = "mask"
    """Booleans that say which elements count."""


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
    """

    def __init__(
        self,
        case: Case,
        device: str = "cpu",
        *,
        only_integers: bool = False,
    ) -> None:
        self._case = case
        self.device = device
        self.only_integers = only_integers
        self._drawn_count = 0
        self._made: list[tuple[torch.Tensor, Role]] = []

    def roles_of(self, inputs: Mapping[str, object]) -> dict[str, Role]:
        """Roles of inputs that are returned as they were made; of others nothing is known."""
        roles: dict[str, Role] = {}
        for name, value in inputs.items():
            for tensor, role in self._made:
                # By identity: an input that was changed after it was made has no known role.
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

        if not distributed.is_available() or not distributed.is_initialized():
            return 0
        return distributed.get_rank()

    def normal(self, *shape: int, scale: float = 1.0, dtype: str | None = None) -> torch.Tensor:
        """Normally distributed around 0 with standard deviation `scale`.

        `roofwatch check` also tries other values, by the input's role. The methods below draw the
        same numbers for inputs with a special role.
        """
        return self._normal(
            shape=shape,
            scale=scale,
            dtype=dtype,
            role=Role.VALUES,
        )

    def logits(self, *shape: int, scale: float = 1.0, dtype: str | None = None) -> torch.Tensor:
        """Normal numbers for a softmax; also checked where one dominates, and with -inf."""
        return self._normal(
            shape=shape,
            scale=scale,
            dtype=dtype,
            role=Role.LOGITS,
        )

    def scores(self, *shape: int, scale: float = 1.0, dtype: str | None = None) -> torch.Tensor:
        """Normal numbers for queries and keys; also checked with sharp and uniform attention."""
        return self._normal(
            shape=shape,
            scale=scale,
            dtype=dtype,
            role=Role.SCORES,
        )

    def gates(self, *shape: int, scale: float = 1.0, dtype: str | None = None) -> torch.Tensor:
        """Normal numbers for a sigmoid, SiLU, GELU or tanh; also checked where it saturates."""
        return self._normal(
            shape=shape,
            scale=scale,
            dtype=dtype,
            role=Role.GATES,
        )

    def terms(self, *shape: int, scale: float = 1.0, dtype: str | None = None) -> torch.Tensor:
        """Normal numbers to add up; also checked where they cancel."""
        return self._normal(
            shape=shape,
            scale=scale,
            dtype=dtype,
            role=Role.TERMS,
        )

    def weights(self, *shape: int, scale: float = 1.0, dtype: str | None = None) -> torch.Tensor:
        """Normal numbers for learned parameters, which are checked with no other values."""
        return self._normal(
            shape=shape,
            scale=scale,
            dtype=dtype,
            role=Role.WEIGHTS,
        )

    def _normal(
        self,
        shape: tuple[int, ...],
        scale: float,
        dtype: str | None,
        role: Role,
    ) -> torch.Tensor:
        if self.only_integers:
            return self._uninitialised(shape, dtype)
        numbers = normal_numbers(
            shape,
            seed=self._next_seed(),
            device=self.device,
            dtype=self._dtype(dtype),
            scale=scale,
        )
        self._made.append((numbers, role))
        return numbers

    def uniform(
        self,
        *shape: int,
        low: float = -1.0,
        high: float = 1.0,
        dtype: str | None = None,
    ) -> torch.Tensor:
        """Uniformly distributed over [low, high)."""
        if self.only_integers:
            return self._uninitialised(shape, dtype)
        return uniform_numbers(
            shape,
            seed=self._next_seed(),
            device=self.device,
            dtype=self._dtype(dtype),
            low=low,
            high=high,
        )

    def integers(self, *shape: int, high: int, low: int = 0, dtype: str = "int64") -> torch.Tensor:
        """Uniformly distributed over low … high − 1; always initialised, because launchers read
        sizes and indices.
        """
        return integer_numbers(
            shape,
            seed=self._next_seed(),
            device=self.device,
            dtype=self._dtype(dtype),
            low=low,
            high=high,
        )

    def permutation(self, length: int, dtype: str = "int64") -> torch.Tensor:
        """The numbers 0 … length − 1, shuffled."""
        import torch

        generator = torch.Generator().manual_seed(self._next_seed())
        numbers = torch.randperm(length, generator=generator)
        return numbers.to(device=self.device, dtype=self._dtype(dtype))

    def mask(self, *shape: int, share: float = 0.5) -> torch.Tensor:
        """Booleans; about `share` of them are true. Also checked with rows that are all false."""
        booleans = self.integers(*shape, high=2**30) < int(share * 2**30)
        self._made.append((booleans, Role.MASK))
        return booleans

    def routing(
        self,
        tokens: int,
        experts: int,
        top_k: int,
        load: str = "uniform",
    ) -> torch.Tensor:
        """Draw `top_k` different ones of the experts for each token, [tokens, top_k] int32.

        The load is `uniform`; `zipf`, where that of the n-th expert is proportional to 1 / n; or
        `all_to_one`, where all tokens choose the same experts. Source of the Gumbel top-k method:
        Kool et al., Stochastic beams and where to find them, 2019 (arXiv 1903.06059).
        """
        import torch

        # A permutation, so that the busy experts are not the first ones.
        log_rank = torch.log(self.permutation(experts).cpu() + 1.0)
        if load == "all_to_one":
            scores = -log_rank.expand(tokens, experts)
        else:
            # From integers: floating-point inputs may be left uninitialised.
            # The half keeps both logarithms finite.
            uniform = (self.integers(tokens, experts, high=2**30).cpu().double() + 0.5) / 2**30
            scores = -torch.log(-torch.log(uniform))
            if load == "zipf":
                scores = scores - log_rank
        return scores.topk(top_k, dim=1).indices.to(device=self.device, dtype=torch.int32)

    def _next_seed(self) -> int:
        # Each input of a case has its own numbers.
        seed = self._case.seed - self._drawn_count
        self._drawn_count += 1
        return seed

    def _dtype(self, name: str | None) -> torch.dtype:
        import torch

        dtype: torch.dtype = getattr(torch, name or self._case.dtype)
        return dtype

    def _uninitialised(self, shape: tuple[int, ...], dtype: str | None) -> torch.Tensor:
        import torch

        return torch.empty(shape, device=self.device, dtype=self._dtype(dtype))
