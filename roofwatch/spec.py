"""What a benchmark file says: kernels, their cases, their implementations and their cost.

A user's file and our own `kernels/` use exactly these names. The module imports nothing of ours, so a worker that
loads somebody else's suite never meets our other packages (docs/decisions/0001-where-the-spec-lives.md).
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import product
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import torch

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")
_WORD = re.compile(r"[A-Za-z0-9_.-]+")

Launcher = TypeVar("Launcher", bound=Callable[..., Any])


class SpecError(ValueError):
    """A benchmark file declares something that cannot be measured."""


class UnsupportedError(NotImplementedError):
    """What an implementation raises where a case cannot be run here: outcome `unsupported`, not a failure. The message
    says what is missing, for example `needs a GPU of compute capability 8.9 or newer`.
    """


class Direction(StrEnum):
    FWD = "fwd"
    BWD = "bwd"


class Language(StrEnum):
    """What an implementation is written in: decides where it can run and how it is compiled."""

    TORCH = "torch"
    TRITON = "triton"
    CUDA = "cuda"
    """CUDA C++ that NVRTC compiles."""


_ITEMSIZE_BYTES = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "uint8": 1,
    "int8": 1,
    "int32": 4,
    "int64": 8,
}


BASELINE_FACTOR = 2.0
"""How many times the eager baseline's error is allowed. Source: the tests of flash-attention (Dao-AILab), which hold
the largest error of their kernels to twice that of plain torch in the same precision.
"""


@dataclass(frozen=True)
class Tolerance:
    """How far a result may lie from the high-precision reference.

    Two errors of a tensor are measured: the largest `|out - ref| / (|ref| + rms(ref))` of its elements, and
    `rms(out - ref) / rms(ref)` of the whole. Each may be `BASELINE_FACTOR` times the eager baseline's plus the floor,
    but never more than the cap. The root mean square in the first keeps elements near zero, which are sums that
    cancelled, from needing a precision that the dtype does not have. docs/accuracy.md gives the sources.

    Args:
        elementwise: Cap of the elements' error.
        rmse_ratio: Cap of the whole's.
        elementwise_floor: Allowed on top of the baseline's; left out, the cap alone decides.
        rmse_floor: The same for the whole.
    """

    elementwise: float
    rmse_ratio: float
    elementwise_floor: float = math.inf
    rmse_floor: float = math.inf

    def or_looser(self, other: Tolerance) -> Tolerance:
        """In each number the looser of the two."""
        return Tolerance(
            max(self.elementwise, other.elementwise),
            max(self.rmse_ratio, other.rmse_ratio),
            max(self.elementwise_floor, other.elementwise_floor),
            max(self.rmse_floor, other.rmse_floor),
        )


TOLERANCES: Mapping[str, Tolerance] = {
    "float64": Tolerance(elementwise=1e-9, rmse_ratio=1e-10, elementwise_floor=1e-12, rmse_floor=1e-13),
    # floors: a sum of thousands of terms in another order than torch's
    "float32": Tolerance(elementwise=1e-4, rmse_ratio=2e-5, elementwise_floor=2e-5, rmse_floor=4e-6),
    # floors: the neighbour of the nearest number, and one rounding
    "float16": Tolerance(elementwise=1e-2, rmse_ratio=2e-3, elementwise_floor=1e-3, rmse_floor=5e-4),
    "bfloat16": Tolerance(elementwise=4e-2, rmse_ratio=1e-2, elementwise_floor=8e-3, rmse_floor=4e-3),
    # three and two bits of mantissa: caps of one rounding, and two roundings of one number may land on neighbours, 1/8
    # and 1/4 apart
    "float8_e4m3fn": Tolerance(elementwise=0.14, rmse_ratio=4e-2, elementwise_floor=0.14, rmse_floor=1e-2),
    "float8_e5m2": Tolerance(elementwise=0.28, rmse_ratio=8e-2, elementwise_floor=0.28, rmse_floor=2e-2),
    # a quantised value may land on the neighbouring level
    "int8": Tolerance(elementwise=4e-2, rmse_ratio=1e-2, elementwise_floor=4e-2, rmse_floor=5e-3),
}

EXACT = Tolerance(elementwise=0.0, rmse_ratio=0.0)
"""For outputs that are indices, masks or packed bits: a number that is nearly right is another number."""

_EXACT_DTYPES = frozenset({"bool", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"})


@dataclass(frozen=True)
class Case:
    """One kernel at one shape, dtype and direction: `case["n_rows"]` is a dimension of its shape, and
    `case.choice("routing")` a word among its dimensions.
    """

    kernel: str
    shape: tuple[tuple[str, int | str], ...]
    dtype: str
    direction: Direction = Direction.FWD
    tags: frozenset[str] = field(default=frozenset(), compare=False)
    """Words to select it by, such as `quick` or `70b`; no part of its identity."""

    def __getitem__(self, dimension: str) -> int:
        length = self._value(dimension)
        if isinstance(length, str):
            raise SpecError(f"{self.id}: {dimension} is the word {length!r}; read it with case.choice({dimension!r})")
        return length

    def choice(self, name: str) -> str:
        """A word of the shape, for example `zipf` where it says `routing=zipf`."""
        value = self._value(name)
        if not isinstance(value, str):
            raise SpecError(f"{self.id}: {name} is the length {value}; read it with case[{name!r}]")
        return value

    def _value(self, name: str) -> int | str:
        for known, value in self.shape:
            if known == name:
                return value
        raise SpecError(
            f"{self.id}: no dimension {name!r}; the shape has {', '.join(known for known, _ in self.shape)}"
        )

    @property
    def id(self) -> str:
        """Stable over commits, whatever the order or the display name: the key of every series."""
        shape = ",".join(f"{name}={length}" for name, length in self.shape)
        return f"{self.kernel}/{shape}/{self.dtype}/{self.direction}"

    @property
    def itemsize(self) -> int:
        """Bytes per element of the case's dtype."""
        return _ITEMSIZE_BYTES[self.dtype]

    @property
    def is_backward(self) -> bool:
        return self.direction is Direction.BWD

    @property
    def seed(self) -> int:
        """Seed of the inputs: a function of the case alone, so that every commit gets the same numbers."""
        return int.from_bytes(hashlib.sha256(self.id.encode()).digest()[:6], "big")


def cases(
    *,
    shapes: Sequence[Mapping[str, int | str]],
    dtypes: Sequence[str] = ("float32",),
    directions: Sequence[str] = ("fwd",),
    tags: Sequence[str] = (),
) -> list[Case]:
    """Every combination of shape, dtype and direction, in that order of nesting; the spec that they are given to
    puts its name in.

    Args:
        shapes: Lengths by dimension; a word where a case differs in kind, for example `{"T": 512, "routing": "zipf"}`.
        dtypes: Of the main operand.
        directions: `fwd`, `bwd` or both.
        tags: Words to select all of them by, for example `quick`.

    Raises:
        SpecError: a dtype or direction that is not known, a dimension that is neither a whole number >= 0 nor a
            word, or a tag that is no word.
    """
    for tag in tags:
        if not _WORD.fullmatch(tag):
            raise SpecError(f"tag {tag!r}: use letters, digits, '_', '.' and '-'")
    for dtype in dtypes:
        if dtype not in _ITEMSIZE_BYTES:
            raise SpecError(f"dtype {dtype!r} is not known; choose from {', '.join(_ITEMSIZE_BYTES)}")
    for direction in directions:
        if direction not in {"fwd", "bwd"}:
            raise SpecError(f"direction {direction!r} is not known; choose 'fwd' or 'bwd'")
    for shape in shapes:
        for name, length in shape.items():
            if isinstance(length, str) and _WORD.fullmatch(length):
                continue
            if not isinstance(length, int) or isinstance(length, bool) or length < 0:
                raise SpecError(f"dimension {name}={length!r}: a length is a whole number >= 0, a choice is a word")
    return [
        Case("", tuple(shape.items()), dtype, Direction(direction), frozenset(tags))
        for shape, dtype, direction in product(shapes, dtypes, directions)
    ]


@dataclass(frozen=True)
class Implementation:
    """One way to compute a kernel: a callable that takes the inputs by name."""

    name: str
    language: Language
    launch: Callable[..., Any]
    directions: frozenset[Direction]
    is_compiled: bool = False
    """Run through torch.compile, which the collector does just before measuring."""
    is_deterministic: bool = False
    """Two runs on the same numbers give the same bits; checked."""
    unsupported_targets: Mapping[str, str] = field(default_factory=dict)
    """Why it is not compiled for a GPU target, by target."""


class InputMaker:
    """Makes a case's seeded inputs on a device. Random by default: zeros and low-entropy data run faster than real
    data does (NVIDIA/cutlass#2004).

    Args:
        case: Seeds the numbers and says the dtype.
        device: Where the tensors are put; `make.device` for what is made in another way.
        only_integers: Leave floating-point tensors as the memory is. Enough to compile for a case, and a model's
            weights then take address space but neither memory nor time.
    """

    def __init__(self, case: Case, device: str = "cpu", *, only_integers: bool = False) -> None:
        import torch

        self._case = case
        self.device = device
        self._only_integers = only_integers
        # drawn on the CPU, so that every device sees the same numbers
        self._generator = torch.Generator(device="cpu").manual_seed(case.seed)

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

    def _finish(self, tensor: torch.Tensor, dtype: str | None) -> torch.Tensor:
        import torch

        return tensor.to(device=self.device, dtype=getattr(torch, dtype or self._case.dtype))

    def _unfilled(self, shape: tuple[int, ...], dtype: str | None) -> torch.Tensor:
        import torch

        return torch.empty(shape, device=self.device, dtype=getattr(torch, dtype or self._case.dtype))

    def normal(self, *shape: int, scale: float = 1.0, dtype: str | None = None) -> torch.Tensor:
        """Normally distributed around 0 with standard deviation `scale`."""
        import torch

        if self._only_integers:
            return self._unfilled(shape, dtype)
        return self._finish(torch.randn(shape, generator=self._generator) * scale, dtype)

    def uniform(self, *shape: int, low: float = -1.0, high: float = 1.0, dtype: str | None = None) -> torch.Tensor:
        """Uniformly distributed over [low, high)."""
        import torch

        if self._only_integers:
            return self._unfilled(shape, dtype)
        return self._finish(torch.rand(shape, generator=self._generator) * (high - low) + low, dtype)

    def integers(self, *shape: int, high: int, low: int = 0, dtype: str = "int64") -> torch.Tensor:
        """Uniformly distributed over low … high − 1; always filled, since launchers read sizes and indices."""
        import torch

        return self._finish(torch.randint(low, high, shape, generator=self._generator), dtype)

    def permutation(self, length: int, dtype: str = "int64") -> torch.Tensor:
        """The numbers 0 … length − 1, shuffled."""
        import torch

        return self._finish(torch.randperm(length, generator=self._generator), dtype)


@dataclass(eq=False)
class KernelSpec:
    """One operation with one meaning, and everything needed to check, time and bound it.

    Args:
        name: Identifier of the kernel; part of every series' key.
        inputs: `inputs(case, make)` returns the keyword arguments of every implementation; floating-point tensors
            are differentiated in the `bwd` direction unless `gradients` names fewer.
        reference: The same operation in plain torch; called with float64 inputs.
        cases: From `roofwatch.cases(...)`; lists may be added together.
        flop_count: FLOP of one call of the case, in its direction; of one rank where several make the call together.
        memory_bytes: Bytes that one call must at least move, in its direction; of one rank too.
        gradients: Inputs to differentiate; all floating-point tensors if left out.
        mutates: Inputs that implementations change in place, such as a cache that is written to. They return them, and
            the reference returns what they shall hold. A call must give the same when it is repeated on what it
            changed, as timed calls are.
        bus_bytes: Of a collective: bytes that each link must carry in one call, which is the size of the data times the
            field's factor for the operation (NVIDIA/nccl-tests doc/PERFORMANCE.md).
        rank_dimension: Dimension that says how many ranks make one call together, 2 or more. Each is a process of its
            own in torch.distributed's default group, with a GPU of its own or on the CPU; the inputs learn which one
            from `make.rank`. Left out, one process makes the call.
        tolerances: Replaces entries of the one tolerance table, by dtype.
        family: For grouping in lists and on the dashboard, for example `normalisation`.
        interpreted_shape: Smaller lengths, by dimension, for accuracy checks in Triton's interpreter.
        edges: Cases that are checked and never timed: odd sizes, one row, an empty batch.
        formula: One line of mathematics, for lists.
        source: Where the operation comes from, for example a paper.
    """

    name: str
    inputs: Callable[[Case, InputMaker], dict[str, Any]]
    reference: Callable[..., Any]
    cases: Sequence[Case]
    flop_count: Callable[[Case], float]
    memory_bytes: Callable[[Case], float]
    gradients: tuple[str, ...] | None = None
    mutates: tuple[str, ...] = ()
    bus_bytes: Callable[[Case], float] | None = None
    rank_dimension: str | None = None
    tolerances: Mapping[str, Tolerance] = field(default_factory=dict)
    family: str = "other"
    interpreted_shape: Mapping[str, int] = field(default_factory=dict)
    edges: Sequence[Case] = ()
    formula: str = ""
    source: str = ""
    implementations: dict[str, Implementation] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        if not _IDENTIFIER.fullmatch(self.name):
            raise SpecError(f"kernel name {self.name!r}: use letters, digits, '_' and '.', not starting with a digit")
        if not self.cases:
            raise SpecError(f"{self.name}: no cases; give cases=roofwatch.cases(shapes=[...])")
        self.cases = tuple(replace(case, kernel=self.name) for case in self.cases)
        self.edges = tuple(replace(case, kernel=self.name) for case in self.edges)
        if len({case.id for case in (*self.cases, *self.edges)}) != len(self.cases) + len(self.edges):
            raise SpecError(f"{self.name}: a case is declared twice")
        if self.rank_dimension in self.interpreted_shape:
            raise SpecError(f"{self.name}: interpreted_shape must leave {self.rank_dimension} as it is")
        for case in (*self.cases, *self.edges):
            if self.rank_dimension is not None and self.rank_count(case) < 2:
                raise SpecError(
                    f"{case.id}: {self.rank_dimension}={self.rank_count(case)}: a group has 2 ranks or more; "
                    "leave rank_dimension out of a kernel that one process runs"
                )

    def implementation(
        self,
        language: str,
        *,
        name: str | None = None,
        compile: bool = False,
        directions: Sequence[str] = ("fwd", "bwd"),
        deterministic: bool = False,
        unsupported_targets: Mapping[str, str] | None = None,
    ) -> Callable[[Launcher], Launcher]:
        """Register a callable as one way to compute this kernel.

        Args:
            language: `torch`, `triton` or `cuda`: what it is written in.
            name: Shown everywhere; `eager` for torch, else the language if left out.
            compile: Also measure the same callable through torch.compile, as implementation `compile`.
            directions: Those it can do; `bwd` needs an output that autograd can differentiate.
            deterministic: Promise the same bits in every run, which the check then holds it to.
            unsupported_targets: Why it is not compiled for a target, by target, for example
                `{"sm_80": "has no fp8 tensor cores"}`.

        Raises:
            SpecError: the language is not known, or the name is taken.
        """
        if language not in list(Language):
            raise SpecError(f"{self.name}: language {language!r} is not known; choose {', '.join(Language)}")
        chosen = Language(language)
        own_name = name or ("eager" if chosen is Language.TORCH else str(chosen))

        def register(launch: Launcher) -> Launcher:
            both = frozenset(Direction(direction) for direction in directions)
            self._add(
                Implementation(
                    own_name,
                    chosen,
                    launch,
                    both,
                    is_deterministic=deterministic,
                    unsupported_targets=dict(unsupported_targets or {}),
                )
            )
            if compile:
                self._add(Implementation("compile", chosen, launch, both, is_compiled=True))
            return launch

        return register

    def _add(self, implementation: Implementation) -> None:
        if not _IDENTIFIER.fullmatch(implementation.name):
            raise SpecError(f"{self.name}: implementation name {implementation.name!r}: use letters, digits and '_'")
        if implementation.name in self.implementations:
            raise SpecError(f"{self.name}: implementation {implementation.name!r} is declared twice")
        self.implementations[implementation.name] = implementation

    def tolerance(self, case: Case, output_dtype: str | None = None) -> Tolerance:
        """The spec's own tolerance for the case's dtype, else the table's.

        Args:
            case: Its dtype decides.
            output_dtype: Of one output. Where it has an entry of its own, the looser of the two holds, so that an fp8
                output of a bfloat16 case is judged as fp8; integers without an entry must be exact.

        Raises:
            SpecError: there is no entry for the case's dtype.
        """
        found = self._tolerance_of(case.dtype)
        if found is None:
            raise SpecError(f"{case.id}: no tolerance for {case.dtype}; give tolerances={{{case.dtype!r}: ...}}")
        if output_dtype is None or output_dtype == case.dtype:
            return found
        own = self._tolerance_of(output_dtype)
        if output_dtype in _EXACT_DTYPES:
            return own or EXACT
        return found if own is None else found.or_looser(own)

    def _tolerance_of(self, dtype: str) -> Tolerance | None:
        return self.tolerances.get(dtype) or TOLERANCES.get(dtype)

    def rank_count(self, case: Case) -> int:
        """Processes that make one call of the case together."""
        return 1 if self.rank_dimension is None else case[self.rank_dimension]

    def interpreted_case(self, case: Case) -> Case:
        """The case that stands in for `case` where Triton code is interpreted: same dtype and direction, with the
        dimensions of `interpreted_shape` put in, since the interpreter is thousands of times slower than a device.
        """
        shape = tuple((name, self.interpreted_shape.get(name, length)) for name, length in case.shape)
        return replace(case, shape=shape)
