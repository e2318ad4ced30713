"""Let many runners post records while readers query the API and the database; count errors, losses and duplicates.

Each runner is a thread with its own token that sends copies of a real record, every tenth of them twice. A fifth of the
runners share a project. One reader queries the API and one the database, without a pause.

    PYTHONPATH=. python bench/runners.py record.json.gz --seconds 120
"""

import argparse
import hashlib
import json
import random
import sys
import tempfile
import threading
import time
import urllib.parse
import urllib.request
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from bench.service import Service, copy_of
from roofwatch.collector.outbox.http_client import HttpSender
from roofwatch.collector.outbox.spool import Acknowledged, Unavailable
from roofwatch.collector.record.record import RunRecord
from roofwatch.db.queries.filter_options import read_filter_options
from roofwatch.db.queries.fleet import list_fleet_runs
from roofwatch.db.queries.records import load_record
from roofwatch.db.queries.runners import list_runner_coverage
from roofwatch.db.queries.series_keys import list_series_keys
from roofwatch.db.queries.trend import TrendQuestion, read_trend
from roofwatch.db.regressions.judgements import list_triaged
from roofwatch.db.schema.runs import RunRow

_PROJECTS = 5
_SENT_TWICE = 0.1
_LOADED = 200


@dataclass
class Observed:
    """Response times, errors and acknowledged records of one thread."""

    posts_s: list[float] = field(default_factory=list)
    reads_s: dict[str, list[float]] = field(default_factory=dict)
    retry_requests: int = 0
    errors: list[str] = field(default_factory=list)
    acknowledged: dict[uuid.UUID, str] = field(default_factory=dict)
    """Content hash by run."""


class Runner:
    """Posts until the end of the benchmark."""

    def __init__(self, service: Service, real: RunRecord, number: int, ends_s: float) -> None:
        self._sender = HttpSender(service.url, service.make_token(f"runner {number}"))
        self._real = real
        self._number = number
        self._ends_s = ends_s
        self._draw = random.Random(f"runner {number}")  # noqa: S311  not for security

    def __call__(self) -> Observed:
        observed, count = Observed(), 0
        while time.monotonic() < self._ends_s:
            record = copy_of(self._real, self._draw, project=f"fleet/{self._number % _PROJECTS}", commit=count)
            count += 1
            for _ in range(1 + (self._draw.random() < _SENT_TWICE)):
                began_s = time.monotonic()
                answer = self._sender.send(record)
                while isinstance(answer, Unavailable) and answer.retry_after_s is not None:
                    observed.retry_requests += 1
                    time.sleep(answer.retry_after_s * self._draw.uniform(1, 2))
                    answer = self._sender.send(record)
                observed.posts_s.append(time.monotonic() - began_s)
                if answer != Acknowledged(record.run_id, record.content_hash):
                    observed.errors.append(str(answer))
                else:
                    observed.acknowledged[record.run_id] = record.content_hash
        return observed


def read_api(service: Service, kernel: str, ends_s: float) -> Observed:
    """Query the API as a dashboard or a CI job does."""
    token = service.make_token("reader")
    shas = [hashlib.sha256(str(commit).encode()).hexdigest()[:40] for commit in range(2)]

    def get(path: str, **query: str) -> None:
        url = f"{service.url}{path}?{urllib.parse.urlencode(query)}"
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})  # noqa: S310  our own
        with urllib.request.urlopen(request, timeout=300) as answer:  # noqa: S310  our own address
            answer.read()

    project = {"project": "fleet/0"}
    return _read(
        {
            "GET /v1/runs": lambda: get("/v1/runs", **project),
            "GET /v1/series/points": lambda: get("/v1/series/points", **project, kernel=kernel, metric="median_ns"),
            "GET /v1/comparison": lambda: get("/v1/comparison", **project, base=shas[0], head=shas[1]),
        },
        ends_s,
    )


def read_store(service: Service, kernel: str, ends_s: float) -> Observed:
    """Query the database as the dashboard's pages do."""
    project = "fleet/0"

    def ask(question: Callable[[Session], Any]) -> Callable[[], None]:
        def answer() -> None:
            with Session(service.engine) as session:
                question(session)

        return answer

    with Session(service.engine) as session:
        keys = list_series_keys(session, project, kernel=kernel, metric="median_ns")
    trend = TrendQuestion(project, tuple(keys[:1]))

    def newest(session: Session) -> None:
        for run in list_fleet_runs(session, project, limit=1):
            load_record(session, uuid.UUID(run.run_id))

    return _read(
        {
            "db: read_filter_options": ask(lambda session: read_filter_options(session, project)),
            "db: list_triaged": ask(lambda session: list_triaged(session, project)),
            "db: list_runner_coverage": ask(lambda session: list_runner_coverage(session, project)),
            "db: list_fleet_runs, load_record": ask(newest),
            "db: read_trend": ask(lambda session: read_trend(session, trend)),
        },
        ends_s,
    )


def _read(questions: dict[str, Callable[[], None]], ends_s: float) -> Observed:
    observed = Observed(reads_s={name: [] for name in questions})
    while time.monotonic() < ends_s:
        for name, ask in questions.items():
            began_s = time.monotonic()
            try:
                ask()
            except Exception as error:  # noqa: BLE001  every error is counted
                observed.errors.append(f"{name}: {type(error).__name__}: {error}")
            else:
                observed.reads_s[name].append(time.monotonic() - began_s)
    return observed


def post_and_read(service: Service, real: RunRecord, *, runners: int, seconds: float) -> dict[str, Any]:
    """Run all threads, and compare stored with acknowledged records."""
    kernel = real.cases[0].kernel
    first = HttpSender(service.url, service.token, timeout_s=300)
    draw = random.Random("before")  # noqa: S311  not for security
    before = [copy_of(real, draw, project="fleet/0", commit=commit) for commit in range(2)]
    for record in before:
        first.send(record)
    began_s = time.monotonic()
    ends_s = began_s + seconds
    posting = [Runner(service, real, number, ends_s) for number in range(runners)]
    reading = [lambda: read_api(service, kernel, ends_s), lambda: read_store(service, kernel, ends_s)]
    barrier = threading.Barrier(runners + len(reading))

    def start(work: Callable[[], Observed]) -> Observed:
        barrier.wait()
        return work()

    with ThreadPoolExecutor(runners + len(reading)) as pool:
        observed = list(pool.map(start, [*posting, *reading]))
    took_s = time.monotonic() - began_s
    acknowledged = {run_id: content_hash for one in observed for run_id, content_hash in one.acknowledged.items()}
    acknowledged |= {record.run_id: record.content_hash for record in before}
    posts_s = [time_s for one in observed for time_s in one.posts_s]
    return {
        "runners": runners,
        "seconds": round(took_s, 1),
        "records_acknowledged": len(acknowledged),
        "posts": len(posts_s),
        "records_per_s": round(len(acknowledged) / took_s, 2),
        "samples_per_s": round(len(acknowledged) * _sample_count(real) / took_s),
        "retry_requests": sum(one.retry_requests for one in observed),
        "errors": sum(len(one.errors) for one in observed),
        "first_errors": [error for one in observed for error in one.errors][:3],
        "post_ms": _percentiles_ms(posts_s),
        "read_ms": {name: _percentiles_ms(times) for one in observed for name, times in one.reads_s.items()},
        **_compare(service, acknowledged),
    }


def _compare(service: Service, acknowledged: dict[uuid.UUID, str]) -> dict[str, int]:
    with Session(service.engine) as session:
        stored = {row.run_id: row.content_hash for row in session.execute(select(RunRow.run_id, RunRow.content_hash))}
        count = session.execute(select(func.count()).select_from(RunRow)).scalar_one()
        chosen = random.Random("compared").sample(sorted(acknowledged), min(_LOADED, len(acknowledged)))  # noqa: S311  not for security
        other = sum(load_record(session, run_id).content_hash != acknowledged[run_id] for run_id in chosen)
    return {
        "lost": len(acknowledged.keys() - stored.keys()),
        "doubled": count - len(stored) + len(stored.keys() - acknowledged.keys()),
        "other_content": other
        + sum(stored.get(run_id, expected) != expected for run_id, expected in acknowledged.items()),
        "loaded_and_compared": len(chosen),
    }


def _sample_count(record: RunRecord) -> int:
    return sum(len(block.samples_ns) for measurement in record.measurements for block in measurement.blocks)


def _percentiles_ms(times_s: Sequence[float]) -> dict[str, float]:
    if not times_s:
        return {}
    p50, p95 = np.percentile(times_s, [50, 95]) * 1e3
    return {"count": len(times_s), "p50": round(float(p50), 1), "p95": round(float(p95), 1)}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("record", type=Path, help="a record of a real run")
    parser.add_argument("--runners", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=120.0)
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="roofwatch-runners-") as folder, Service(Path(folder)) as service:
        real = RunRecord.read(chosen.record)
        found = post_and_read(service, real, runners=chosen.runners, seconds=chosen.seconds)
    print(json.dumps(found, indent=2))
    return 1 if found["errors"] or found["lost"] or found["doubled"] or found["other_content"] else 0


if __name__ == "__main__":
    sys.exit(main())
