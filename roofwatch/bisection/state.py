"""What to bisect, and the state of a bisection in its folder."""

from __future__ import annotations

import glob
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, ValidationError

from roofwatch.bisection.commits import CommitRange
from roofwatch.ci.bisect.pairs import PairResult
from roofwatch.ci.bisect.search import BuildInputs, Evidence, SearchPlan, prior_weights
from roofwatch.collector.errors import JournalError, SuiteError
from roofwatch.collector.outbox.files import atomic_write, reason_of
from roofwatch.collector.run_plan import RunPlan, select
from roofwatch.collector.workers.protocol import SuiteInfo
from roofwatch.db.values import BisectionRange

_DIRECTIONS = frozenset({"fwd", "bwd"})


@dataclass(frozen=True)
class BisectPlan:
    """What to bisect, and how.

    Args:
        path: Benchmark file or folder in a git repository; None for the bundled suite.
        commit_range: Project, series and ends; the ends may be any revisions.
        run: How to measure; the series is filled in.
        output: Folder of all bisections; each has its own subfolder.
        search: When to stop.
        budget_s: Time limit in seconds; None for none.
        is_resumed: Continue the bisection in the folder.
        is_discarded: Delete it first.
    """

    path: Path | None
    commit_range: BisectionRange
    run: RunPlan
    output: Path
    search: SearchPlan
    budget_s: float | None = None
    is_resumed: bool = False
    is_discarded: bool = False

    @property
    def series(self) -> str:
        return "/".join(filter(None, (self.commit_range.case_id, self.commit_range.implementation)))

    def folder(self, commits: CommitRange) -> Path:
        """Return the folder of this bisection, the same for the same suite, series, ends and settings."""
        run, search = self.run, self.search
        settings = (run.device, run.thread_count, run.timer, run.cache, search.threshold, search.error_rate)
        digest = hashlib.sha256(f"{self.path and self.path.resolve()} {self.series} {settings}".encode()).hexdigest()
        return self.output / f"{commits.good_sha[:12]}-{commits.shas[-1][:12]}-{digest[:8]}"


class _Document(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Visit(_Document):
    """One commit measured against the good end."""

    position: int
    """From 0, the commit after the good end."""
    pair: PairResult
    probability: float = 1.0
    """Of the change being in this commit or an earlier one, after the visit."""
    finished_at: AwareDatetime


class BisectState(_Document):
    """Everything known about a bisection; written to a file after every visit."""

    format: Literal[1] = 1
    commits: tuple[str, ...]
    """From the one after the good end to the bad end."""
    implementation: str
    inputs: tuple[BuildInputs, ...] | None = None
    """Of the good end and of each commit; None until the ends are known to differ."""
    visits: tuple[Visit, ...] = ()

    def evidence(self) -> Evidence:
        positions = range(len(self.commits))
        weights = [1.0] * len(positions) if self.inputs is None else [one.value for one in prior_weights(self.inputs)]
        return Evidence(
            weights=tuple(weights),
            log_ratios=tuple(
                tuple(ratio for visit in self.visits if visit.position == position for ratio in visit.pair.log_ratios)
                for position in positions
            ),
            is_unmeasurable=tuple(bool(self.error_at(position)) for position in positions),
        )

    def error_at(self, position: int) -> str:
        """Return why a commit cannot be measured; empty if no reason is known."""
        errors = [] if self.inputs is None else [self.inputs[position + 1].error]
        errors += [visit.pair.error for visit in self.visits if visit.position == position]
        return next(filter(None, errors), "")

    def with_visit(self, visit: Visit) -> Self:
        return self.model_copy(update={"visits": (*self.visits, visit)})

    def write(self, path: Path) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            atomic_write(path, self.model_dump_json(indent=1).encode())
        except OSError as error:
            raise JournalError(f"{path}: cannot be written: {reason_of(error)}") from None

    @classmethod
    def read(cls, path: Path) -> Self | None:
        """Read the state; None if there is none.

        Raises:
            JournalError: the file is damaged or has another version.
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


def parse_series(text: str) -> tuple[str, str | None]:
    """Split `KERNEL/CASE[/IMPLEMENTATION]` into case and implementation.

    Raises:
        SuiteError: the text has another form.
    """
    parts = text.split("/")
    if len(parts) > 2 and parts[-1] in _DIRECTIONS:
        return text, None
    if len(parts) > 3 and parts[-2] in _DIRECTIONS:
        return "/".join(parts[:-1]), parts[-1]
    raise SuiteError(
        f"series {text!r}: write KERNEL/CASE/fwd or KERNEL/CASE/fwd/IMPLEMENTATION; roofwatch list --json has the cases"
    )


def choose_implementation(info: SuiteInfo, case_id: str, implementation: str | None) -> str:
    """Return the implementation to measure.

    Raises:
        SuiteError: the suite does not have it, or has several and none is named.
    """
    plan = RunPlan(kernels=(case_id.partition("/")[0],), cases=(glob.escape(case_id),))
    found = [one.implementation for one in select(info, plan)]
    names = [one.name for one in found if info.device != "cpu" or one.language == "torch"]
    if implementation is not None and implementation in names:
        return implementation
    if implementation is None and len(names) == 1:
        return names[0]
    known = ", ".join(names) or "none"
    raise SuiteError(f"series {case_id}: name an implementation that can be timed on this device: {known}")
