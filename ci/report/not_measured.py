"""Why a pull request has no records: a small file in their place, and what is reported of it. Pure."""

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from roofwatch.ci.report.markdown import code, code_block, plain
from roofwatch.collector.errors import RecordError
from roofwatch.collector.record.record import Commit, Side

FILE_NAME = "not-measured.json"
MAX_BYTES = 100_000
_MAX_ERROR = 4_000
"""Characters."""
_MAX_LINES = 20


class NotMeasured(BaseModel):
    """Written by `roofwatch ab` if there is nothing to measure, or if it could not measure."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1] = 1
    head: Commit
    side: Side | None = None
    """Whose suite cannot be loaded."""
    error: Annotated[str, Field(max_length=_MAX_ERROR)] = ""
    """Its last lines, redacted; empty if the change touches no kernel."""

    @classmethod
    def of(cls, head: Commit, error: str = "", side: str | None = None) -> Self:
        return cls(head=head, side=None if side is None else Side(side), error=error[-_MAX_ERROR:])

    @property
    def is_failure(self) -> bool:
        """Whether the change broke the benchmark: the base can be loaded."""
        return self.side is Side.HEAD

    @property
    def title(self) -> str:
        """One line of plain text."""
        if not self.error:
            return "no kernel touched: nothing to measure"
        first = plain(self.error.strip().splitlines()[0])
        if self.is_failure:
            return f"the head cannot be loaded: {first}"
        return f"no result: {first}" if self.side is None else f"no result: the base cannot be loaded: {first}"

    def to_markdown(self) -> str:
        """Write the comment and the summary of the check-run."""
        commit = code(self.head.sha[:8])
        if not self.error:
            return f"**roofwatch: no kernel touched** ({commit}): nothing to measure.\n"
        heading, advice = "⚪ No result", "Nothing was compared."
        if self.is_failure:
            heading = "❌ The benchmark cannot be loaded"
            advice = f"The base can be loaded, {commit} cannot. **Next:** fix the error."
        elif self.side is not None:
            advice = "The base cannot be loaded. **Next:** fix the target branch."
        return "\n".join([f"### {heading}", "", advice, "", *code_block(self.error, most=_MAX_LINES), ""])

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
