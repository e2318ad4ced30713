"""An export holds what cannot be found out again, and importing it makes the same rows."""

import uuid
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any

import orjson
import pytest
from sqlalchemy import URL, Engine, text
from sqlalchemy.orm import Session

from roofwatch.collector.record.record import RunRecord
from roofwatch.db.alerts.outbox import claim_next
from roofwatch.db.alerts.standing import list_alerts, write_steps
from roofwatch.db.alerts.values import Alert, AlertEvent, AlertState, AlertStep, Fact, Link, Message, Severity, Telling
from roofwatch.db.artefacts import read_artefact, store_artefact
from roofwatch.db.auth.audit import list_entries
from roofwatch.db.auth.tokens import create_token
from roofwatch.db.auth.trust import list_trusted, trust_repository
from roofwatch.db.auth.values import Scope, TriageState
from roofwatch.db.bisections.store import claim_bisection, finish_bisection, request_bisection
from roofwatch.db.bisections.values import (
    Answer,
    BisectionCommit,
    BisectionProgress,
    BisectionRange,
    BisectionState,
    BisectionStep,
    Standing,
)
from roofwatch.db.engine.session import make_engine
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.maintenance.aged_parts import Part
from roofwatch.db.maintenance.exporting import export_lines
from roofwatch.db.maintenance.importing import Imported, import_lines
from roofwatch.db.maintenance.retention import prune
from roofwatch.db.maintenance.verify import verify_store
from roofwatch.db.projects import ensure_project
from roofwatch.db.regressions.judgements import replace_regressions
from roofwatch.db.regressions.standings import read_judged_history
from roofwatch.db.regressions.triage import read_triage, regression_id, set_triage
from roofwatch.store.archive_file import check_archive, read_archive, write_archive
from roofwatch.store.keeping import import_store
from tests.builders import (
    NOON,
    PROJECT,
    make_artefact,
    make_commit,
    make_commit_ref,
    make_measurement,
    make_record,
    make_regression,
)
from tests.databases import TEMPLATE
from tests.db.maintenance.test_backup import tables_without_statistics
from tests.db.queries.test_records import full_record

TRACE = bytes(range(256)) * 10_000
"""Longer than one piece."""


@pytest.fixture
def another_store(databases: Any) -> Iterator[Engine]:
    url: URL = databases.make(TEMPLATE)
    engine = make_engine(url)
    yield engine
    engine.dispose()
    databases.finish(url)


def lived_in(store: Engine) -> list[RunRecord]:
    """A store with records that agree and disagree, some quarantined or without what aged, and deeds of people."""
    records = [
        make_record(1, commit=make_commit(1, first_parent_count=1)),
        make_record(1),
        full_record(),
        make_record(2),
        make_record(
            3,
            measurements=[make_measurement(), make_measurement(implementation="triton")],
            artefacts=(make_artefact(TRACE), make_artefact(b"", name="empty.json")),
        ),
    ]
    for record in records:
        ingest_record(store, record)
    for content in (TRACE, b""):
        store_artefact(store, records[-1].run_id, sha256(content).hexdigest(), BytesIO(content))
    ingest_record(store, make_record(4), is_quarantined=True)
    found = make_regression(2)
    replace_regressions(store, PROJECT, [found])
    set_triage(
        store, PROJECT, regression_id(found), TriageState.EXPECTED, person="somebody", reason="it pays", actor="a test"
    )
    tell(store)
    bisect(store)
    trust_repository(store, "owner/name", PROJECT, ["refs/heads/main"], actor="a test")
    now = datetime.now(UTC)
    prune(store, {Part.SAMPLES: 1, Part.TELEMETRY: 1}, now=now, is_dry_run=False, actor="a test")
    return records


ALERT = Alert(
    PROJECT,
    *("slow", "total\ncommit 2", Severity.CRITICAL, AlertState.FIRING, 2),
    Message(
        "12 % slower", (Fact("commit", "<b>two</b>"),), ("@somebody",), (Link("dashboard", "https://example.org"),)
    ),
    fired_at=NOON,
    told_at=NOON,
)
ASKED = BisectionRange(PROJECT, "total/n=500/float32/fwd", "eager", "0" * 40, "1" * 40)


def tell(store: Engine) -> None:
    """An alert of which one channel was told and another was not yet, and one that is over."""
    over = replace(ALERT, cause="another", state=AlertState.RESOLVED, resolved_at=NOON)
    tellings = (Telling("mail", AlertEvent.FIRED), Telling("chat", AlertEvent.FIRED))
    with Session(store) as session, session.begin():
        ensure_project(session, PROJECT)
        write_steps(session, [AlertStep(ALERT, tellings), AlertStep(over)], NOON)
    with claim_next(store, NOON) as claim:
        assert claim is not None
        claim.note_sent(NOON)


def bisect(store: Engine) -> None:
    """One that is over, with its answer, and one that waits."""
    progress = BisectionProgress(
        (BisectionCommit(make_commit_ref(1), 0.99, Standing.MEASURED, "", 3, 0.05),),
        (BisectionStep("1" * 40, 8, 0.05, 0.99, "", NOON),),
        11,
    )
    answer = Answer(make_commit_ref(1), make_commit_ref(1), 0.99, 0.05, (0.04, 0.06))
    with Session(store) as session, session.begin():
        request_bisection(session, ASKED, requested_by="rule: slow")
    claim = claim_bisection(store, PROJECT, "any")
    assert claim is not None
    finish_bisection(store, claim, BisectionState.FOUND, progress=progress, answer=answer, note="sure")
    with Session(store) as session, session.begin():
        request_bisection(session, ASKED, requested_by="somebody")


def exported(store: Engine) -> list[bytes]:
    return list(export_lines(store, now=NOON))


def take(store: Engine, path: Path, *, takes_trust: bool = True) -> Imported:
    manifest = check_archive(path)
    return import_lines(
        store, read_archive(path), takes_trust=takes_trust, actor="a test", source_sha256=manifest.sha256
    )


def test_an_import_into_an_empty_store_gives_the_same_export_again(
    store: Engine, another_store: Engine, tmp_path: Path
) -> None:
    lived_in(store)
    lines = exported(store)
    write_archive(tmp_path / "store.zst", lines)

    imported = take(another_store, tmp_path / "store.zst")

    again = [line for line in exported(another_store) if b'"store.import"' not in line]
    assert again[:-1] == lines[:-1]
    assert not imported.conflicts
    assert imported.projects == {PROJECT}
    assert verify_store(another_store).is_whole


def test_every_row_of_a_run_is_the_same_after_an_import(store: Engine, another_store: Engine, tmp_path: Path) -> None:
    lived_in(store)
    write_archive(tmp_path / "store.zst", exported(store))
    take(another_store, tmp_path / "store.zst")

    # of rows with a number of their own, all but that number
    for query in (
        "SELECT run_id, content_hash, branch, ingested_at, measured_on, as_sent::text, outcome_counts::text, "
        "samples_pruned_at, telemetry_pruned_at, unread_fields::text FROM run ORDER BY run_id",
        "SELECT sha, parents, first_parent_count, committed_at, author FROM commit ORDER BY sha, id",
        "SELECT r.run_id, s.implementation, s.timer, m.median_ns, m.below_ns, m.above_ns, m.outcome, m.utilisation, "
        "m.sample_count, m.is_memory_bound, m.host_ns, m.peak_allocated_bytes, s.has_host_time, s.has_memory "
        "FROM measurement m JOIN run r ON r.number = m.run_number "
        "JOIN series s ON s.id = m.series_id ORDER BY 1, 2, 3",
        "SELECT r.run_id, sha256(x.content) FROM sample_set x JOIN run r ON r.number = x.run_number ORDER BY 1, 2",
        "SELECT name FROM project ORDER BY 1",
        "SELECT sha, kernel, verdict, state, person, reason, changed_at FROM triage",
        "SELECT name, to_jsonb(alert) - 'id' - 'project_id', alert.message::text "
        "FROM alert JOIN project ON project.id = project_id ORDER BY rule, cause",
        "SELECT cause, to_jsonb(delivery) - 'id' - 'alert_id', delivery.message::text "
        "FROM delivery JOIN alert ON alert.id = alert_id ORDER BY key",
        "SELECT name, to_jsonb(bisection) - 'project_id' FROM bisection JOIN project ON id = project_id ORDER BY 2",
        "SELECT to_jsonb(bisection_commit) FROM bisection_commit",
        "SELECT to_jsonb(bisection_step) FROM bisection_step",
    ):
        with store.connect() as before, another_store.connect() as after:
            assert after.execute(text(query)).all() == before.execute(text(query)).all(), query


def test_an_import_leaves_statistics(store: Engine, another_store: Engine, tmp_path: Path) -> None:
    lived_in(store)
    write_archive(tmp_path / "store.zst", exported(store))
    assert tables_without_statistics(another_store)

    take(another_store, tmp_path / "store.zst")

    assert tables_without_statistics(another_store) == []


def test_a_second_import_changes_nothing(store: Engine, another_store: Engine, tmp_path: Path) -> None:
    lived_in(store)
    write_archive(tmp_path / "store.zst", exported(store))
    take(another_store, tmp_path / "store.zst")
    before = exported(another_store)

    again = take(another_store, tmp_path / "store.zst")

    assert not again.new_counts
    assert exported(another_store) == before


def test_an_import_that_was_cut_short_is_finished_by_the_next(
    store: Engine, another_store: Engine, tmp_path: Path
) -> None:
    lived_in(store)
    write_archive(tmp_path / "store.zst", exported(store))
    lines = list(read_archive(tmp_path / "store.zst"))
    import_lines(another_store, lines[:4], takes_trust=True, actor="a test", source_sha256="0" * 64)

    rest = take(another_store, tmp_path / "store.zst")

    assert rest.known_counts.total() == 3
    assert verify_store(another_store).run_count == 6


def test_an_import_that_was_cut_short_before_it_judged_is_judged_by_the_next(
    store: Engine, another_store: Engine, tmp_path: Path
) -> None:
    ingest_record(store, make_record())
    write_archive(tmp_path / "store.zst", exported(store))
    take(another_store, tmp_path / "store.zst")

    again = import_store(another_store, tmp_path / "store.zst", takes_trust=False)

    assert not again.new_counts
    with Session(another_store) as session:
        assert read_judged_history(session, PROJECT) is not None


def test_a_run_that_is_stored_with_other_content_is_kept_and_told(
    store: Engine, another_store: Engine, tmp_path: Path
) -> None:
    run_id = uuid.uuid4()
    ingest_record(store, make_record(1, run_id=run_id))
    ingest_record(store, make_record(2))
    other = make_record(3, run_id=run_id)
    ingest_record(another_store, other)
    write_archive(tmp_path / "store.zst", exported(store))

    imported = take(another_store, tmp_path / "store.zst")

    assert len(imported.conflicts) == 1
    assert str(run_id) in imported.conflicts[0]
    assert imported.new_counts["run"] == 1


def test_files_come_along_to_the_last_byte(store: Engine, another_store: Engine, tmp_path: Path) -> None:
    records = lived_in(store)
    write_archive(tmp_path / "store.zst", exported(store))

    take(another_store, tmp_path / "store.zst")

    found = read_artefact(another_store, records[-1].run_id, sha256(TRACE).hexdigest())
    assert b"".join(found) == TRACE


def test_what_waits_to_be_told_is_told_by_the_store_that_takes_it_and_what_was_told_is_not(
    store: Engine, another_store: Engine, tmp_path: Path
) -> None:
    tell(store)
    write_archive(tmp_path / "store.zst", exported(store))

    take(another_store, tmp_path / "store.zst")

    with claim_next(another_store, NOON) as claim:
        assert claim is not None
        assert claim.delivery.channel == "chat"
        assert claim.delivery.message == ALERT.message
        claim.note_sent(NOON)
    with claim_next(another_store, NOON) as claim:
        assert claim is None


def test_an_alert_and_a_bisection_that_are_known_here_stay_as_they_are(
    store: Engine, another_store: Engine, tmp_path: Path
) -> None:
    tell(store)
    bisect(store)
    write_archive(tmp_path / "store.zst", exported(store))
    seen = replace(ALERT, state=AlertState.RESOLVED, episode=3, resolved_at=NOON)
    with Session(another_store) as session, session.begin():
        ensure_project(session, PROJECT)
        write_steps(session, [AlertStep(seen)], NOON)
        request_bisection(session, ASKED, requested_by="somebody here")

    imported = take(another_store, tmp_path / "store.zst")

    assert (imported.new_counts["alert"], imported.known_counts["alert"]) == (1, 1)
    assert (imported.new_counts["bisection"], imported.known_counts["bisection"]) == (1, 1)
    with Session(another_store) as session:
        assert [alert.episode for alert in list_alerts(session, PROJECT) if alert.cause == ALERT.cause] == [3]


def test_what_was_decided_last_counts(store: Engine, another_store: Engine, tmp_path: Path) -> None:
    lived_in(store)
    write_archive(tmp_path / "store.zst", exported(store))
    ingest_record(another_store, make_record(2))
    found = make_regression(2)
    ingest_record(another_store, make_record(1))
    replace_regressions(another_store, PROJECT, [found])
    set_triage(
        another_store, PROJECT, regression_id(found), TriageState.FIXED, person="later", reason="mended", actor="a test"
    )

    take(another_store, tmp_path / "store.zst")

    with Session(another_store) as session:
        assert read_triage(session, PROJECT)[found.key].state is TriageState.FIXED


def test_nobody_new_is_let_in_unless_that_is_said(store: Engine, another_store: Engine, tmp_path: Path) -> None:
    lived_in(store)
    write_archive(tmp_path / "store.zst", exported(store))

    take(another_store, tmp_path / "store.zst", takes_trust=False)
    with Session(another_store) as session:
        assert list_trusted(session) == []

    take(another_store, tmp_path / "store.zst", takes_trust=True)
    with Session(another_store) as session:
        assert [one.repository for one in list_trusted(session)] == ["owner/name"]
        assert list_entries(session, PROJECT)


def test_tokens_are_in_no_export(store: Engine) -> None:
    made = create_token(
        store,
        name="a token of ours",
        project=PROJECT,
        scopes={Scope.READ},
        now=datetime.now(UTC),
        validity=timedelta(days=1),
        is_quarantined=False,
        actor="a test",
    )
    lived_in(store)

    everything = b"".join(exported(store))
    assert made.text.encode() not in everything
    assert b'"kind":"token"' not in everything
    assert b"secret" not in everything


def test_one_record_is_held_at_a_time(store: Engine) -> None:
    lived_in(store)
    lines = export_lines(store, now=NOON)

    assert next(lines).startswith(b'{"kind":"header"')
    assert next(lines).startswith((b'{"kind":"run"', b'{"kind":"aged_run"'))
    lines.close()  # type: ignore[attr-defined]  # a generator


def test_an_export_sees_one_state_of_the_store(store: Engine) -> None:
    ingest_record(store, make_record(1))
    lines = export_lines(store, now=NOON)
    begun = [next(lines), next(lines)]

    ingest_record(store, make_record(2))

    assert orjson.loads([*begun, *lines][-1])["counts"]["run"] == 1
