"""One operation with one meaning: what a benchmark file declares."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from roofwatch.spec.case import Case, Direction
from roofwatch.spec.errors import SpecError
from roofwatch.spec.implementation import Implementation, Language
from roofwatch.spec.input_maker import InputMaker
from roofwatch.spec.tolerance import EXACT, EXACT_DTYPES, TOLERANCES, Tolerance

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")

Launcher = TypeVar("Launcher", bound=Callable[..., Any])


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
            raise SpecError(
                f"{self.name}: language {language!r} is not known; choose {', '.join(Language)}, and call the "
                "implementation as you like with name=…"
            )
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
        if output_dtype in EXACT_DTYPES:
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
