"""What was not measured: the cases of a project without a result, and a pull request without
records. Pure.
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass
from enum import StrEnum
from itertools import product
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from roofwatch.ci.messages import code, code_block, plain
from roofwatch.model.case_key import kernel_of
from roofwatch.model.errors import RecordError
from roofwatch.model.grouping import group_by
from roofwatch.model.machine import Outcome
from roofwatch.model.record import Commit, Side

FILE_NAME = "not-measured.json"
# the note comes from the job that runs untrusted code
MAX_BYTES = 100_000
_MAX_ERROR = 4_000
"""Characters."""
_MAX_LINES = 20


class NotMeasured(BaseModel):
    """A file in place of the records of `roofwatch ab`: there is nothing to measure, or it could
    not measure.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1] = 1
    head: Commit
    side: Side | None = None
    """Whose suite cannot be loaded."""
    error: Annotated[str, Field(max_length=_MAX_ERROR)] = ""
    """Its last lines, redacted; empty if the change touches no kernel."""

    @classmethod
    def of(
        cls,
        head: Commit,
        error: str = "",
        side: str | None = None,
    ) -> Self:
        """Keep the last characters of an error, where compilers and test runners sum up."""
        named_side = None
        if side is not None:
            named_side = Side(side)
        return cls(
            head=head,
            side=named_side,
            error=error[-_MAX_ERROR:],
        )

    @property
    def is_failure(self) -> bool:
        """Whether the change broke the benchmark: the base can be loaded."""
        return self.side is Side.HEAD

    @property
    def exit_code(self) -> int:
        """Exit status: 0 nothing to measure, 1 the change broke the benchmark, 2 not decided."""
        if not self.error:
            return 0
        if self.is_failure:
            return 1
        return 2

    @property
    def title(self) -> str:
        """One line of plain text."""
        if not self.error:
            return "no kernel touched: nothing to measure"
        first = plain(self.error.strip().splitlines()[0])
        if self.is_failure:
            return f"the head cannot be loaded: {first}"
        if self.side is None:
            return f"no result: {first}"
        return f"no result: the base cannot be loaded: {first}"

    def to_markdown(self) -> str:
        """Write the comment and the summary of the check-run."""
        commit = code(self.head.sha[:8])
        if not self.error:
            return f"**roofwatch: no kernel touched** ({commit}): nothing to measure.\n"
        heading = "⚪ No result"
        advice = "Nothing was compared."
        # the base loads, so the change broke it
        if self.is_failure:
            heading = "❌ The benchmark cannot be loaded"
            advice = f"The base can be loaded, {commit} cannot. **Next:** fix the error."
        elif self.side is not None:
            advice = "The base cannot be loaded. **Next:** fix the target branch."
        return "\n".join(
            [
                f"### {heading}",
                "",
                advice,
                "",
                *code_block(self.error, most=_MAX_LINES),
                "",
            ]
        )

    @classmethod
    def parse(cls, document: bytes, *, name: str) -> Self:
        """Validate the untrusted content of a file.

        Raises:
            RecordError: it is not valid.
        """
        try:
            return cls.model_validate_json(document)
        except ValidationError as error:
            raise RecordError(f"{name}: not valid: {error.error_count()} problem(s)") from None


# --- gaps of coverage


class Gap(StrEnum):
    """In order of importance."""

    FAILING = "failing"
    """An implementation fails."""
    UNSUPPORTED = "unsupported"
    """No implementation can run there."""
    NEVER_MEASURED = "never measured"
    """No result on this runner class, but on another one."""


@dataclass(frozen=True)
class CoverageGap:
    """Cases of one kernel with one gap on one runner class."""

    kernel: str
    runner_class: str
    gap: Gap
    case_ids: tuple[str, ...]
    case_count: int
    """Number of the kernel's cases, on all runner classes."""
    outcomes: tuple[Outcome, ...]
    """Outcomes of the failing cases."""


def coverage_gaps(cases: Mapping[str, Mapping[str, Set[Outcome]]]) -> list[CoverageGap]:
    """List the gaps, failures first, then by the number of cases.

    Cases have the outcomes of all implementations by runner class, of its newest run.
    """
    all_ids: set[str] = set()
    for by_case in cases.values():
        all_ids |= by_case.keys()
    by_kernel = group_by(sorted(all_ids), kernel_of)
    gaps: list[CoverageGap] = []
    for (runner_class, by_case), (kernel, case_ids) in product(cases.items(), by_kernel.items()):
        for gap in Gap:
            gap_ids = [
                case_id for case_id in case_ids if _gap_of(by_case.get(case_id, frozenset())) is gap
            ]
            # most kernels have no gap
            if not gap_ids:
                continue
            outcomes: set[Outcome] = set()
            for case_id in gap_ids:
                outcomes |= by_case.get(case_id, frozenset())
            failures = [
                outcome for outcome in Outcome if outcome in outcomes and outcome.is_failure
            ]
            gaps.append(
                CoverageGap(
                    kernel=kernel,
                    runner_class=runner_class,
                    gap=gap,
                    case_ids=tuple(gap_ids),
                    case_count=len(case_ids),
                    outcomes=tuple(failures),
                )
            )
    return sorted(gaps, key=_importance)


def _importance(gap: CoverageGap) -> tuple[int, int, str, str]:
    return (
        list(Gap).index(gap.gap),
        -len(gap.case_ids),
        gap.kernel,
        gap.runner_class,
    )


def _gap_of(outcomes: Set[Outcome]) -> Gap | None:
    if not outcomes:
        return Gap.NEVER_MEASURED
    if outcomes == {Outcome.UNSUPPORTED}:
        return Gap.UNSUPPORTED
    if any(outcome.is_failure for outcome in outcomes):
        return Gap.FAILING
    return None
