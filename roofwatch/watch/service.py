"""The service behind a watch: records of other runners, leases, and records to send."""

import platform
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID, uuid5

from pydantic import BaseModel, TypeAdapter
from pydantic_core import to_json

from roofwatch.ci.messages import on_one_line
from roofwatch.console.terminal import print_error
from roofwatch.db.errors import AgedError
from roofwatch.model.agenda import Job, StoredJob
from roofwatch.model.errors import SpoolError
from roofwatch.model.queue import MAX_NOTE_CHARACTERS
from roofwatch.model.record import RunRecord
from roofwatch.model.stored_results import RunSummary
from roofwatch.reporting.records import RECORD_SUFFIX
from roofwatch.store.server import Server, server_at
from roofwatch.store.transfer import sender_and_spool, summary

_NAMESPACE = UUID("d0a3c0a4-6f0e-4c53-9d4c-0a6c9b1f4b52")
_MAX_JOBS = 30
"""First jobs of an agenda that are sent."""


class _Taken(BaseModel):
    key: str | None


_TAKEN = TypeAdapter(_Taken)
_JOBS = TypeAdapter(list[StoredJob])


@dataclass
class Service:
    """A server that keeps the records of all runners of a project.

    While it is away, the folder of records is all that is known, jobs are done without a lease, and
    records wait in the spool.
    """

    url: str
    project: str
    runner_class: str
    records: Path
    is_away: bool = False
    _aged: set[str] = field(default_factory=set)
    """Runs whose samples are no longer kept."""

    @property
    def _server(self) -> Server:
        return server_at(self.url)

    @property
    def _claim_id(self) -> UUID:
        """The same for a process that continues after a kill."""
        return uuid5(_NAMESPACE, f"{platform.node()}\n{self.records.resolve()}")

    def exchange(self, records: Sequence[RunRecord]) -> None:
        """Fetch the records of this runner class that the folder lacks, and send those that the
        server lacks: a killed process may not have sent its last ones.

        Args:
            records: All of the folder.
        """
        local_ids = {str(record.run_id) for record in records} | self._aged
        try:
            runs = self._server.list_runs(self.project, None)
            for run in runs:
                # times of other classes cannot be compared
                if run.runner_class == self.runner_class and run.run_id not in local_ids:
                    self._fetch(run)
        except SpoolError as error:
            self._note_away(error)
            return
        self.is_away = False
        stored = {run.run_id for run in runs}
        # records of a killed process that were written and not sent
        missing = [record for record in records if str(record.run_id) not in stored]
        if missing:
            self.send(missing)

    def _fetch(self, run: RunSummary) -> None:
        try:
            record = self._server.load_record(UUID(run.run_id))
        except AgedError:
            self._aged.add(run.run_id)
            return
        record.write(self.records / f"fetched-{run.run_id}{RECORD_SUFFIX}")

    def requested_jobs(self) -> list[StoredJob]:
        """Open jobs of this runner class that a person asked for, in their order; none while the
        server is away.
        """
        if self.is_away:
            return []
        try:
            jobs = list(self._server.pages("/v1/agenda", {"project": self.project}, _JOBS))
        except SpoolError as error:
            self._note_away(error)
            return []
        return [
            job
            for job in jobs
            if job.is_requested
            and job.runner_class == self.runner_class
            # another runner may have done it meanwhile
            and job.finished_at is None
        ]

    def take(self, jobs: Sequence[Job]) -> Job | None:
        """Lease the most valuable job that no other runner has; the first if the server is away."""
        first_job = jobs[0] if jobs else None
        # `exchange` asks again before the next job
        if self.is_away:
            return first_job
        body = {
            "runner_class": self.runner_class,
            "claim_id": self._claim_id,
            "jobs": [job.planned() for job in jobs[:_MAX_JOBS]],
        }
        try:
            taken = self._server.post(
                "/v1/agenda/take", {"project": self.project}, to_json(body), _TAKEN
            )
        except SpoolError as error:
            self._note_away(error)
            return first_job
        return next((job for job in jobs if job.key == taken.key), None)

    def finish(self, job: Job, spent_s: float, note: str = "") -> None:
        """End the lease of a job; a note says why nothing was measured."""
        # the lease was never taken, or ends by itself
        if self.is_away:
            return
        body = {
            "runner_class": self.runner_class,
            "claim_id": self._claim_id,
            "key": job.key,
            "spent_s": spent_s,
        }
        # a server of an earlier version does not know notes
        if note:
            body["note"] = on_one_line(note)[:MAX_NOTE_CHARACTERS]
        try:
            self._server.post(
                "/v1/agenda/finish", {"project": self.project}, to_json(body), TypeAdapter(object)
            )
        except SpoolError as error:
            self._note_away(error)

    def send(self, records: Sequence[RunRecord]) -> None:
        """Send records, and those that wait in the spool; what cannot be sent stays there."""
        sender, spool = sender_and_spool(self.url, None)
        # in the spool first: what is on disk survives a kill
        for record in records:
            spool.submit(record)
        if self.is_away:
            return
        for line in summary(spool.deliver(sender), spool):
            print_error(line)

    def _note_away(self, error: SpoolError) -> None:
        if not self.is_away:
            # once, not at each call while it is away
            print_error(f"{error}; going on with the records of {self.records}")
        self.is_away = True
