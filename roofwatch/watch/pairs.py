"""Pairs of commits that people asked a watch to measure, and the report of what came of them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from roofwatch.ci.messages import on_one_line
from roofwatch.model.agenda import Job, JobKind, PlannedJob
from roofwatch.model.errors import SuiteError
from roofwatch.model.files import atomic_write, make_folder
from roofwatch.model.queue import (
    MAX_NOTE_CHARACTERS,
    REPORT_FILE,
    AnsweredPair,
    RequestedPair,
    WatchReport,
)

_EXPECTED_S = 60.0


def parse_pair(text: str) -> RequestedPair:
    """Read `BASE..HEAD`.

    Raises:
        SuiteError: it is something else.
    """
    base_sha, dots, head_sha = text.partition("..")
    if not (base_sha and dots and head_sha) or head_sha.startswith("."):
        raise SuiteError(f"pair {text!r}: write BASE..HEAD, two commits of the branch")
    return RequestedPair(base_sha=base_sha, head_sha=head_sha)


@dataclass
class PairRequests:
    """Pairs that wait in this process, and the report about the others."""

    records: Path
    runner_class: str
    waiting: list[RequestedPair]
    _answered: list[AnsweredPair] = field(default_factory=list)

    def planned(self) -> Sequence[PlannedJob]:
        """The waiting pairs as jobs."""
        return [_planned(pair) for pair in self.waiting]

    def answer(self, job: Job, spent_s: float, note: str) -> None:
        """Note that a job was measured, or why it cannot be, if it is of a waiting pair."""
        for pair in self.waiting:
            if _planned(pair).key != job.key:
                continue
            answered = AnsweredPair(
                base_sha=pair.base_sha,
                head_sha=pair.head_sha,
                spent_s=spent_s,
                note=on_one_line(note)[:MAX_NOTE_CHARACTERS] or None,
            )
            self._answered.append(answered)
            self.waiting.remove(pair)
            self.write()
            return

    def write(self) -> None:
        """Write the report, after each pair: a limit of the queue may end the process."""
        report = WatchReport(runner_class=self.runner_class, pairs=tuple(self._answered))
        file = self.records / REPORT_FILE
        make_folder(file.parent)
        atomic_write(file, report.model_dump_json().encode())


def _planned(pair: RequestedPair) -> PlannedJob:
    return PlannedJob(
        key=f"{JobKind.CONFIRM}:{pair.base_sha}:{pair.head_sha}",
        kind=JobKind.CONFIRM,
        reason="a person asked for it",
        expected_s=_EXPECTED_S,
        base_sha=pair.base_sha,
        head_sha=pair.head_sha,
    )
