"""A kernel as declared by a benchmark file, and its implementations."""

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeVar

from roofwatch.spec.case import Case, Direction, SpecError, UnsupportedError, cases
from roofwatch.spec.input_maker import InputMaker
from roofwatch.spec.tolerance import EXACT, EXACT_DTYPES, TOLERANCES, Tolerance

if TYPE_CHECKING:
    import torch

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")

Launcher = TypeVar("Launcher", bound=Callable[..., Any])
Configuration = Mapping[str, str | int | float | bool]
"""Keyword arguments of a launcher that change its speed and not its result, such as a block size.
"""


class Language(StrEnum):
    """Determines where an implementation can run and how it is compiled."""

    TORCH = "torch"
    TRITON = "triton"
    CUDA = "cuda"
    """CUDA C++ compiled by NVRTC."""


@dataclass(frozen=True)
class Implementation:
    """One way to compute a kernel: a callable with the inputs as keyword arguments."""

    name: str
    language: Language
    launch: Callable[..., Any]
    directions: frozenset[Direction]
    is_compiled: bool = False
    """Runs through torch.compile."""
    is_deterministic: bool = False
    """Two runs on the same numbers must give the same bits."""
    unsupported_targets: Mapping[str, str] = field(default_factory=dict)
    """Why it is not compiled for a GPU target, by target."""
    configs: tuple[Configuration, ...] = ()
    """What `roofwatch tune` tries."""


@dataclass(eq=False)
class KernelSpec:
    """One operation with everything needed to check, time and bound it.

    Args:
        name: Identifier of the kernel, part of every series' key.
        inputs: `inputs(case, make)` returns the keyword arguments of every implementation.
            Floating-point tensors are differentiated in the `bwd` direction unless `gradients`
            names fewer.
        reference: The same operation in plain torch; called with float64 inputs.
        cases: From `roofwatch.cases(...)`; lists may be concatenated.
        flop_count: FLOP of one call in the case's direction; with several ranks, of one rank.
        memory_bytes: Minimum bytes that one call moves, likewise.
        gradients: Inputs to differentiate; default all floating-point tensors.
        mutates: Inputs that implementations change in place, such as a cache. They are returned,
            and the reference returns their expected values. Repeating a call on the changed inputs
            must give the same result.
        bus_bytes: For a collective, bytes that each link carries in one call: the size of the data
            times the operation's factor (NVIDIA/nccl-tests doc/PERFORMANCE.md).
        token_count: Tokens that one call processes, for rates in tokens per second.
        rank_dimension: Dimension with the number of ranks that make one call together, at least 2.
            Each is a process in torch.distributed's default group with its own GPU, or on the CPU;
            `make.rank` is its rank.
        tolerances: Replaces entries of the tolerance table, by dtype.
        family: Groups kernels in lists and on the dashboard, for example `normalisation`.
        interpreted_shape: Smaller lengths by dimension, for accuracy checks in Triton's
            interpreter.
        edges: Cases that are checked and not timed: odd sizes, one row, an empty batch.
        formula: One line of mathematics, for lists.
        source: Origin of the operation, for example a paper.
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
    token_count: Callable[[Case], float] | None = None
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
            raise SpecError(
                f"kernel name {self.name!r}: use letters, digits, '_' and '.', not starting with "
                f"a digit"
            )
        if not self.cases:
            raise SpecError(f"{self.name}: no cases; give cases=roofwatch.cases(shapes=[...])")
        if not all(isinstance(case, Case) for case in (*self.cases, *self.edges)):
            raise SpecError(
                f"{self.name}: cases and edges are made by roofwatch.cases(shapes=[...])"
            )
        # `cases()` is called before the kernel has a name.
        self.cases = tuple(replace(case, kernel=self.name) for case in self.cases)
        self.edges = tuple(replace(case, kernel=self.name) for case in self.edges)
        # Results are stored by the id of their case.
        if len({case.id for case in (*self.cases, *self.edges)}) != len(self.cases) + len(
            self.edges
        ):
            raise SpecError(f"{self.name}: a case is declared twice")
        # A group in the interpreter has as many ranks as the group on GPUs.
        if self.rank_dimension in self.interpreted_shape:
            raise SpecError(f"{self.name}: interpreted_shape must not change {self.rank_dimension}")
        for case in (*self.cases, *self.edges):
            if self.rank_dimension is not None and self.rank_count(case) < 2:
                raise SpecError(
                    f"{case.id}: {self.rank_dimension}={self.rank_count(case)}: a group has at "
                    f"least 2 ranks; "
                    "omit rank_dimension for a kernel that one process runs"
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
        configs: Sequence[Configuration] = (),
    ) -> Callable[[Launcher], Launcher]:
        """Register a callable as one way to compute this kernel.

        Args:
            language: `torch`, `triton` or `cuda`.
            name: Default: the language.
            compile: Also measure it through torch.compile, as implementation `compile`.
            directions: Supported ones; `bwd` requires outputs that autograd can differentiate.
            deterministic: Every run must give the same bits, which the check verifies.
            unsupported_targets: Why it is not compiled for a target, by target, for example
                `{"sm_80": "has no fp8 tensor cores"}`.
            configs: Keyword arguments that `roofwatch tune` tries, for example
                `[{"block": 512, "num_warps": 4}, {"block": 1024, "num_warps": 8}]`. Other commands
                call the launcher without them.

        Raises:
            SpecError: an unknown language, a name that is taken, or a configuration that the
                launcher has no parameters for.
        """
        if language not in list(Language):
            raise SpecError(
                f"{self.name}: language {language!r} is not known; choose {', '.join(Language)}, "
                f"and set the "
                "implementation's name with name=…"
            )
        chosen = Language(language)
        own_name = name or str(chosen)

        def register(launch: Launcher) -> Launcher:
            self._require_parameters(own_name, launch, configs)
            both = frozenset(Direction(direction) for direction in directions)
            self._add(
                Implementation(
                    name=own_name,
                    language=chosen,
                    launch=launch,
                    directions=both,
                    is_deterministic=deterministic,
                    unsupported_targets=dict(unsupported_targets or {}),
                    configs=tuple(dict(configuration) for configuration in configs),
                )
            )
            if compile:
                self._add(
                    Implementation(
                        name="compile",
                        language=chosen,
                        launch=launch,
                        directions=both,
                        is_compiled=True,
                    )
                )
            return launch

        return register

    def _require_parameters(
        self,
        name: str,
        launch: Callable[..., Any],
        configs: Sequence[Configuration],
    ) -> None:
        if not configs:
            return
        parameters = inspect.signature(launch).parameters
        for key in {key for configuration in configs for key in configuration}:
            # without a default, the commands that do not tune could not call it
            if key not in parameters or parameters[key].default is inspect.Parameter.empty:
                raise SpecError(
                    f"{self.name}: {name} has no parameter {key!r} with a default value, which "
                    f"configs= sets"
                )

    def _add(self, implementation: Implementation) -> None:
        if not _IDENTIFIER.fullmatch(implementation.name):
            raise SpecError(
                f"{self.name}: implementation name {implementation.name!r}: use letters, digits "
                f"and '_'"
            )
        if implementation.name in self.implementations:
            raise SpecError(
                f"{self.name}: implementation {implementation.name!r} is declared twice"
            )
        self.implementations[implementation.name] = implementation

    def tolerance(self, case: Case, output_dtype: str | None = None) -> Tolerance:
        """Tolerance of an output: the spec's own, or that of the table.

        Args:
            case: Its dtype selects the tolerance.
            output_dtype: If it has its own entry, the looser of the two applies, for example for an
                fp8 output of a bfloat16 case; integers without an entry must be exact.

        Raises:
            SpecError: there is no entry for the case's dtype.
        """
        of_case = self._tolerance_of(case.dtype)
        if of_case is None:
            raise SpecError(
                f"{case.id}: no tolerance for {case.dtype}; give tolerances={{{case.dtype!r}: ...}}"
            )
        if output_dtype is None or output_dtype == case.dtype:
            return of_case
        of_output = self._tolerance_of(output_dtype)
        if output_dtype in EXACT_DTYPES:
            return of_output or EXACT
        if of_output is None:
            return of_case
        return of_case.or_looser(of_output)

    def _tolerance_of(self, dtype: str) -> Tolerance | None:
        return self.tolerances.get(dtype) or TOLERANCES.get(dtype)

    def rank_count(self, case: Case) -> int:
        """Number of processes that make one call together."""
        if self.rank_dimension is None:
            return 1
        return case[self.rank_dimension]

    def interpreted_case(self, case: Case) -> Case:
        """The smaller case that replaces `case` in Triton's interpreter, which is thousands of
        times slower.
        """
        shape = tuple(
            (name, self.interpreted_shape.get(name, length)) for name, length in case.shape
        )
        return replace(case, shape=shape)


# --- a launch of a jitted function: compiled by `roofwatch static`, never run

# Any number will do: only dtype and alignment are part of the compiled code.
_POINTER_ELEMENTS = 64


def pointer(dtype: str, *, aligned: bool = True) -> "torch.Tensor":
    """Make a tensor that Triton specialises as a pointer to a dtype, with an address divisible by
    16 if aligned.
    """
    import torch

    # torch aligns allocations; one element further, the address is divisible by the element size
    # only.
    elements = torch.empty(_POINTER_ELEMENTS + 1, dtype=getattr(torch, dtype))
    if aligned:
        return elements[:-1]
    return elements[1:]


def jit_launch(
    name: str,
    function: Any,
    arguments: Mapping[str, Any],
    options: Mapping[str, Any] | None = None,
) -> KernelSpec:
    """Declare a launch of a jitted, perhaps autotuned function as a kernel with one case and
    without a reference.

    Triton specialises integers among the arguments by their size, by divisibility by 16 and by
    equality to 1. Options are those of the compiler, such as `num_warps`.
    """
    parameters, tuned = _parameters(function)
    constexprs = {
        key: arguments.get(key)
        for key, parameter in parameters.items()
        if "constexpr" in str(parameter.annotation)
    }
    # By type, as a bool is an integer: flags are no lengths.
    lengths = {key: value for key, value in constexprs.items() if type(value) is int and value >= 0}
    dtypes = [
        str(value.dtype).removeprefix("torch.")
        for value in arguments.values()
        if hasattr(value, "data_ptr")
    ]
    dtypes = [dtype for dtype in dtypes if dtype in TOLERANCES]

    def reference() -> "torch.Tensor":
        raise UnsupportedError(f"{name} is a launch without a reference")

    def launch() -> "torch.Tensor":
        if unknown := sorted(set(arguments) - parameters.keys()):
            raise UnsupportedError(
                f"{name}: the function has no parameter {unknown[0]!r}, but {', '.join(parameters)}"
            )
        required = [
            key
            for key, parameter in parameters.items()
            if parameter.default is parameter.empty and key not in tuned
        ]
        if missing := [key for key in required if key not in arguments]:
            raise UnsupportedError(f"{name}: the launch has no value for {missing[0]!r}")
        function[(1,)](**arguments, **(options or {}))
        return pointer("float32")

    spec = KernelSpec(
        name=name,
        inputs=lambda case, make: {},  # noqa: ARG005  signature of a spec's function
        reference=reference,
        cases=cases(shapes=[lengths or {"programs": 1}], dtypes=dtypes[:1] or ["float32"]),
        flop_count=lambda case: 0.0,  # noqa: ARG005
        memory_bytes=lambda case: 0.0,  # noqa: ARG005,
    )
    spec.implementation("triton", directions=["fwd"])(launch)
    return spec


def _parameters(function: Any) -> tuple[Mapping[str, inspect.Parameter], set[str]]:
    """Parameters of a jitted function, and the names of those that an autotuner or a heuristic
    around it sets.
    """
    tuned: set[str] = set()
    # Autotuner and heuristics wrap the jitted function, each as `fn`.
    while hasattr(function, "fn"):
        tuned |= set(getattr(function, "values", ()))
        tuned |= {key for config in getattr(function, "configs", ()) for key in config.kwargs}
        function = function.fn
    return inspect.signature(function).parameters, tuned
