"""Configurations of a kernel: what each costs, why it lost, and which one is chosen."""

from enum import StrEnum
from typing import Literal

from pydantic import Field

from roofwatch.model.machine import Configuration, Count, Message, Name, Part, PositiveNs
from roofwatch.model.results import StaticFacts


class ConfiguredCode(Part):
    """What one configuration compiles to, for one case and target."""

    function: Name | None = None
    """The autotuned function that has it; None for `configs=` of the spec."""
    configuration: Configuration
    facts: tuple[StaticFacts, ...] = ()
    unknown: tuple[Name, ...] = ()
    """Names in the configuration that the launcher has no parameters for."""


class Loss(StrEnum):
    """Why a configuration is not the one that is chosen."""

    NOT_COMPILED = "not_compiled"
    DOES_NOT_FIT = "does_not_fit"
    """No block fits onto a multiprocessor."""
    SPILLS = "spills"
    PREDICTED_SLOWER = "predicted_slower"
    FAILED = "failed"
    """It gave a wrong result, or did not run."""
    SLOWER = "slower"
    """Measured."""
    TIED = "tied"
    """No slower than the chosen one, as far as can be told."""
    UNKNOWN = "unknown"
    """The model has no estimate, and nothing was measured."""


class TriedConfiguration(Part):
    """One configuration of one case on one device or target."""

    configuration: Configuration
    loss: Loss | None = None
    """None for the chosen one."""
    detail: Message = ""
    """The loss in words."""
    predicted_ns: PositiveNs | None = None
    median_ns: PositiveNs | None = None
    """Median of the medians of its blocks."""
    block_count: Count = 0
    registers: Count | None = None
    shared_bytes: Count | None = None
    local_bytes: Count | None = None
    theoretical_occupancy: float | None = None


class TunedCase(Part):
    """All configurations of one case on one device or for one target, the chosen one first."""

    case_id: Name
    kernel: Name
    shape: dict[Name, int | str]
    dtype: Name
    direction: Literal["fwd", "bwd"]
    implementation: Name
    function: Name | None = None
    device: Name | None = None
    """None if nothing was measured."""
    target: Name | None = None
    """None on a CPU."""
    evidence: Literal["measured", "predicted", "none"]
    ending: Message = ""
    """Why the timing ended."""
    tried: tuple[TriedConfiguration, ...]

    @property
    def chosen(self) -> TriedConfiguration | None:
        return next((tried for tried in self.tried if tried.loss is None), None)


# --- tables that projects ship


class TableRow(Part):
    """A row of a table of tuned configurations."""

    file: str
    label: str
    """What the row is for, such as a batch size."""
    configuration: Configuration
    device: Name | None = None
    """As the table names it."""
    target: Name | None = None
    """Of the device; None if the table names none that is known."""
    triton_version: str | None = None
    """The release that the table was tuned with, if it says so."""
    has_other_columns: bool = False
    """The configuration has the sizes and results of the row too, as in a CSV file."""


class AuditedRow(Part):
    """What a row compiles to."""

    row: TableRow
    target: Name
    compiled: TriedConfiguration
    stale: tuple[Message, ...] = ()
    """Why the row may not belong to this kernel and release any more."""


# --- the file that a kernel reads


class TunedEntry(Part):
    """The chosen configuration of one case on one device or for one target."""

    kernel: Name
    implementation: Name
    function: Name | None = None
    shape: dict[Name, int | str]
    dtype: Name
    direction: Literal["fwd", "bwd"]
    device: Name | None = None
    target: Name | None = None
    configuration: Configuration
    evidence: Literal["measured", "predicted"]
    time_ns: PositiveNs
    """Measured median, or predicted."""
    tried_count: Count
    made_on: str
    """Date, as YYYY-MM-DD."""
    made_by: str
    """The command."""
    versions: dict[str, str] = Field(default_factory=dict)
    """Of roofwatch, torch and triton."""

    @property
    def subject(self) -> tuple[object, ...]:
        """What only one entry of a file is about."""
        return (
            self.kernel,
            self.implementation,
            self.function,
            tuple(sorted(self.shape.items())),
            self.dtype,
            self.direction,
            self.device,
            self.target,
        )

    @property
    def sort_key(self) -> str:
        return repr(self.subject)


class TunedTable(Part):
    format: Literal["roofwatch-tuned-1"]
    entries: tuple[TunedEntry, ...] = ()
