"""Let many runners post records while readers query the API and the database; count errors, losses
and duplicates.

Each runner is a thread with its own token that sends copies of a real record, every tenth of them
twice. A fifth of the runners share a project. One reader queries the API and one the database,
without a pause.

    PYTHONPATH=. python bench/runners.py record.json.gz --seconds 120
"""

import argparse
import hashlib
import json
import random
import sys
import tempfile
import time
import urllib.parse
import urllib.request
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from roofwatch.collector.outbox.http_client import HttpSender
from roofwatch.collector.outbox.spool import Acknowledged, Unavailable
from roofwatch.db.queries.fleet import list_fleet_runs
from roofwatch.db.queries.records import load_record
from roofwatch.db.queries.series_keys import list_series_keys
from roofwatch.db.queries.trend import TrendQuestion, read_trend
from roofwatch.db.regressions.judgements import list_triaged
from roofwatch.db.schema.runs import RunRow
from roofwatch.model.record import RunRecord
from tests.api.service import Service, copy_of

_PROJECTS = 5
_SENT_TWICE = 0.1
"""Share of records, as after a lost answer."""
_LOADED = 200
"""Records that are read back; all would take longer than the test."""


@dataclass
class Observed:
    read_count: int = 0
    errors: list[str] = field(default_factory=list)
    acknowledged: dict[uuid.UUID, str] = field(default_factory=dict)
    """Content hash by run."""


def post(
    service: Service,
    real: RunRecord,
    number: int,
    ends_s: float,
    observed: Observed,
) -> None:
    """Post as runner number `number` until the end of the benchmark."""
    sender = HttpSender(service.url, service.make_token(f"runner {number}"))
    draw = random.Random(f"runner {number}")  # noqa: S311  not for security
    commit = 0
    while time.monotonic() < ends_s:
        record = copy_of(real, draw, project=f"fleet/{number % _PROJECTS}", commit=commit)
        commit += 1
        send_count = 1
        if draw.random() < _SENT_TWICE:
            send_count = 2
        for _ in range(send_count):
            answer = sender.send(record)
            # A server that asks for patience gets it; each runner waits another time.
            while isinstance(answer, Unavailable) and answer.retry_after_s is not None:
                time.sleep(answer.retry_after_s * draw.uniform(1, 2))
                answer = sender.send(record)
            if answer == Acknowledged(record.run_id, record.content_hash):
                observed.acknowledged[record.run_id] = record.content_hash
            else:
                observed.errors.append(str(answer))


def api_questions(service: Service, kernel: str) -> list[Callable[[], None]]:
    """Query the API as a dashboard or a CI job does."""
    token = service.make_token("reader")
    # as `copy_of` makes them from the numbers of commits
    shas: list[str] = []
    for commit in range(2):
        digest = hashlib.sha256(str(commit).encode()).hexdigest()
        shas.append(digest[:40])

    def get(path: str, **query: str) -> None:
        parameters = urllib.parse.urlencode({"project": "fleet/0", **query})
        address = f"{service.url}{path}?{parameters}"
        headers = {"Authorization": f"Bearer {token}"}
        request = urllib.request.Request(address, headers=headers)  # noqa: S310  our own address
        with urllib.request.urlopen(request, timeout=300) as answer:  # noqa: S310
            answer.read()

    return [
        lambda: get("/v1/runs"),
        lambda: get("/v1/series/points", kernel=kernel, metric="median_ns"),
        lambda: get("/v1/comparison", base=shas[0], head=shas[1]),
    ]


def store_questions(service: Service, kernel: str) -> list[Callable[[], None]]:
    """Query the database as the dashboard's pages do."""
    project = "fleet/0"

    def ask() -> None:
        with Session(service.engine) as session:
            list_triaged(session, project)
            keys = list_series_keys(
                session=session,
                project=project,
                kernel=kernel,
                metric="median_ns",
            )
            read_trend(session, TrendQuestion(project, tuple(keys[:1])))
            for run in list_fleet_runs(session, project, limit=1):
                load_record(session, uuid.UUID(run.run_id))

    return [ask]


def read(questions: Sequence[Callable[[], None]], ends_s: float, observed: Observed) -> None:
    while time.monotonic() < ends_s:
        for ask in questions:
            try:
                ask()
            except Exception as error:  # noqa: BLE001  every error is counted
                observed.errors.append(f"{type(error).__name__}: {error}")
            observed.read_count += 1


def post_and_read(
    service: Service,
    real: RunRecord,
    *,
    runners: int,
    seconds: float,
) -> dict[str, Any]:
    """Run all threads, and compare stored with acknowledged records."""
    kernel = real.cases[0].kernel
    observed = Observed()
    sender = HttpSender(service.url, service.token, timeout_s=300)
    draw = random.Random("before")  # noqa: S311  not for security
    # the comparison needs two commits from the first question on
    for commit in range(2):
        record = copy_of(real, draw, project="fleet/0", commit=commit)
        sender.send(record)
        observed.acknowledged[record.run_id] = record.content_hash
    ends_s = time.monotonic() + seconds
    questions = [api_questions(service, kernel), store_questions(service, kernel)]
    with ThreadPoolExecutor(runners + len(questions)) as pool:
        work = [
            pool.submit(
                post,
                service,
                real,
                number,
                ends_s,
                observed,
            )
            for number in range(runners)
        ]
        work += [pool.submit(read, reader, ends_s, observed) for reader in questions]
        # An exception of a thread ends the benchmark: it is no result.
        for future in work:
            future.result()
    acknowledged = observed.acknowledged
    with Session(service.engine) as session:
        rows = session.execute(select(RunRow.run_id, RunRow.content_hash)).all()
        stored = {row.run_id: row.content_hash for row in rows}
        loaded_count = min(_LOADED, len(acknowledged))
        run_ids = draw.sample(sorted(acknowledged), loaded_count)
        # the stored hash was sent; that of a loaded record is computed from its content
        loaded = {run_id: load_record(session, run_id).content_hash for run_id in run_ids}
    changed_count = 0
    for run_id, content_hash in (*stored.items(), *loaded.items()):
        # A record that is stored without an acknowledgement will be sent again.
        if acknowledged.get(run_id, content_hash) != content_hash:
            changed_count += 1
    return {
        "records_acknowledged": len(acknowledged),
        "reads": observed.read_count,
        "errors": len(observed.errors),
        "first_errors": observed.errors[:3],
        "lost": len(acknowledged.keys() - stored.keys()),
        "doubled": len(rows) - len(stored.keys() & acknowledged.keys()),
        "other_content": changed_count,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("record", type=Path, help="a record of a real run")
    parser.add_argument("--runners", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=120.0)
    chosen = parser.parse_args(arguments)
    with (
        tempfile.TemporaryDirectory(prefix="roofwatch-runners-") as folder,
        Service(Path(folder)) as service,
    ):
        real = RunRecord.read(chosen.record)
        results = post_and_read(
            service=service,
            real=real,
            runners=chosen.runners,
            seconds=chosen.seconds,
        )
    print(json.dumps(results, indent=2))
    faults = ("errors", "lost", "doubled", "other_content")
    return int(any(results[fault] for fault in faults))


if __name__ == "__main__":
    sys.exit(main())
