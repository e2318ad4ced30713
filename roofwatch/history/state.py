"""A bisection on the disk: a document that is whole after every commit that was measured, to be gone on with.

Blocks of the commit that is being measured are in a journal of their own beside it until then.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, ValidationError

from roofwatch.ci.bisect.search import Evidence, MadeFrom, weigh
from roofwatch.collector.errors import JournalError
from roofwatch.collector.outbox.files import atomic_write, reason_of


class _Document(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Visit(_Document):
    """One commit measured against the good end."""

    position: int
    """From 0, the commit after the good end."""
    log_ratios: tuple[float, ...]
    block_count: int
    """Taken on each side."""
    trouble: str = ""
    """Why it could not be measured."""
    probability: float = 1.0
    """That the change is there or before, after the visit."""
    finished_at: AwareDatetime


class BisectState(_Document):
    """All that is known of a bisection."""

    format: Literal[1] = 1
    asked: dict[str, Any]
    """What must be equal to go on, as JSON has it."""
    commits: tuple[str, ...]
    """From the one after the good end to the bad end."""
    implementation: str
    runner_class: str = ""
    made: tuple[MadeFrom, ...] | None = None
    """Of the good end and of each commit; None before they were looked at."""
    visits: tuple[Visit, ...] = ()

    def evidence(self) -> Evidence:
        """What the search goes by."""
        pairs = [tuple(ratio for visit in self._visits_of(at) for ratio in visit.log_ratios) for at in self._positions]
        return Evidence(
            weights=tuple(1.0 for _ in self.commits)
            if self.made is None
            else tuple(each.weight for each in weigh(self.made)),
            log_ratios=tuple(pairs),
            unmeasurable=tuple(bool(self.trouble_at(position)) for position in self._positions),
        )

    def trouble_at(self, position: int) -> str:
        """Why a commit cannot be measured; empty where it can, as far as is known."""
        if self.made is not None and self.made[position + 1].trouble:
            return self.made[position + 1].trouble
        return next((visit.trouble for visit in self._visits_of(position) if visit.trouble), "")

    @property
    def measurement_count(self) -> int:
        """Blocks taken, on both sides."""
        return 2 * sum(visit.block_count for visit in self.visits)

    @property
    def _positions(self) -> range:
        return range(len(self.commits))

    def _visits_of(self, position: int) -> list[Visit]:
        return [visit for visit in self.visits if visit.position == position]

    def with_fields(self, **fields: Any) -> Self:
        return self.model_copy(update=fields)

    def write(self, path: Path) -> None:
        """Put it on the disk, whole.

        Raises:
            JournalError: it cannot be written.
        """
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            atomic_write(path, self.model_dump_json(indent=1).encode())
        except OSError as error:
            raise JournalError(f"{path}: cannot be written: {reason_of(error)}") from None

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """What is on the disk; None where there is nothing.

        Raises:
            JournalError: it is damaged, or of another version.
        """
        try:
            return cls.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except OSError as error:
            raise JournalError(f"{path}: cannot be read: {reason_of(error)}") from None
        except ValidationError:
            raise JournalError(
                f"{path}: damaged, or written by another version of roofwatch: --discard removes it"
            ) from None
