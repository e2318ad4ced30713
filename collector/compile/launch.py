"""One launch of a compiled function, and what was compiled for it."""

from dataclasses import dataclass

from roofwatch.collector.compile.launch_arguments import LaunchShape
from roofwatch.model.machine import Configuration, Outcome

_MAX_MESSAGE = 2_000


@dataclass(frozen=True)
class Compiled:
    identity: str
    """Equal for launches that were compiled in the same way."""
    binary: bytes
    symbol: str
    """The function's name in the binary."""
    thread_count: int
    dynamic_shared_bytes: int
    toolchain: dict[str, str]
    compile_ns: dict[str, int]
    """By stage; empty if it came from the compiler's cache."""
    assembly: str | None = None
    """AMD only: the text whose metadata lists the resources."""
    tensor_memory_columns: int | None = None
    ir: str | None = None
    """Triton's IR, before any target's passes."""
    shape: LaunchShape | None = None
    """None if the launcher's grid cannot be computed."""


@dataclass(frozen=True)
class TunedFunction:
    """A jitted function, and one of the configurations that its autotuner chooses from."""

    name: str
    configuration: Configuration


@dataclass
class Launch:
    """One launch of a jitted function or CUDA kernel; `message` says why it was not compiled."""

    function: str
    configuration: Configuration
    compiled: Compiled | None = None
    outcome: Outcome = Outcome.OK
    message: str | None = None
    tuned: TunedFunction | None = None
    """None if no autotuner chooses its configuration."""

    def fail(self, error: Exception) -> None:
        self.outcome = Outcome.COMPILE_ERROR
        self.message = f"{type(error).__name__}: {error}"[:_MAX_MESSAGE]
