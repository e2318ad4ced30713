"""The queue of a server, as clients and runners call it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from uuid import UUID

from pydantic import BaseModel, TypeAdapter
from pydantic_core import to_json

from roofwatch.model.queue import QueuedJob, QueueForecast, QueueRequest, TakenJob, WatchReport
from roofwatch.store.server import Server

_JOBS = "/v1/queue/jobs"
_ANY = TypeAdapter(object)
_LISTED = TypeAdapter(list[QueuedJob])


class _Requested(BaseModel):
    job: QueuedJob
    forecast: QueueForecast


class _Followed(BaseModel):
    job: QueuedJob
    lines: list[str]


class _Assignment(BaseModel):
    job: TakenJob | None


class _ProgressAnswer(BaseModel):
    is_cancelled: bool


_REQUESTED = TypeAdapter(_Requested)
_FOLLOWED = TypeAdapter(_Followed)
_ASSIGNMENT = TypeAdapter(_Assignment)
_PROGRESS = TypeAdapter(_ProgressAnswer)


@dataclass(frozen=True)
class QueueService:
    """Every method raises SpoolError if the server cannot be reached, or refuses."""

    server: Server

    # --- people

    def request(self, project: str, request: QueueRequest) -> tuple[QueuedJob, QueueForecast]:
        answer = self.server.post(_JOBS, {"project": project}, to_json(request), _REQUESTED)
        return answer.job, answer.forecast

    def send_tree(self, job_id: UUID, content: bytes) -> None:
        self.server.put(f"{_JOBS}/{job_id}/tree", {}, content, _ANY)

    def follow(self, job_id: UUID, after: int) -> tuple[QueuedJob, Sequence[str]]:
        """The job, and its lines of progress from a number on."""
        answer = self.server.read(f"{_JOBS}/{job_id}", {"after": after}, _FOLLOWED)
        return answer.job, answer.lines

    def cancel(self, job_id: UUID) -> None:
        self.server.post(f"{_JOBS}/{job_id}/cancel", {}, b"{}", _ANY)

    def result(self, job_id: UUID) -> bytes:
        return self.server.get(f"{_JOBS}/{job_id}/result")

    def jobs(self, project: str) -> Iterator[QueuedJob]:
        return self.server.pages(_JOBS, {"project": project}, _LISTED)

    # --- runners

    def take(self, runner_class: str, claim_id: UUID, runner: str) -> TakenJob | None:
        free = {"runner_class": runner_class, "claim_id": claim_id, "runner": runner}
        document = to_json(free)
        return self.server.post("/v1/queue/take", {}, document, _ASSIGNMENT).job

    def tree(self, job_id: UUID, claim_id: UUID) -> bytes:
        return self.server.get(f"{_JOBS}/{job_id}/tree", {"claim_id": claim_id})

    def report(self, job_id: UUID, claim_id: UUID, lines: Sequence[str]) -> bool:
        """Renew the lease; return whether the job was cancelled."""
        document = to_json({"claim_id": claim_id, "lines": lines})
        answer = self.server.post(f"{_JOBS}/{job_id}/progress", {}, document, _PROGRESS)
        return answer.is_cancelled

    def release(self, job_id: UUID, claim_id: UUID) -> None:
        document = to_json({"claim_id": claim_id})
        self.server.post(f"{_JOBS}/{job_id}/release", {}, document, _ANY)

    def finish(
        self,
        job_id: UUID,
        claim_id: UUID,
        *,
        exit_status: int,
        spent_s: float,
        content: bytes,
        report: WatchReport | None,
    ) -> None:
        query: dict[str, object] = {
            "claim_id": claim_id,
            "exit_status": exit_status,
            "spent_s": spent_s,
        }
        if report is not None:
            query["report"] = to_json(report).decode()
        self.server.put(f"{_JOBS}/{job_id}/result", query, content, _ANY)
