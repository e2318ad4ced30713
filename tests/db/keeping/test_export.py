"""An export holds what cannot be found out again, and importing it makes the same rows."""

import gzip
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any

import orjson
import pytest
import zstandard
from sqlalchemy import URL, Engine, create_engine, text
from sqlalchemy.orm import Session

from collector.errors import RecordError
from collector.record import RunRecord
from db.access.audit import list_entries
from db.access.tokens import create_token
from db.access.trust import list_trusted, trust_repository
from db.access.values import Scope, TriageState
from db.artefacts import read_artefact, store_artefact
from db.errors import StoreError
from db.judged.judgements import replace_regressions
from db.judged.triage import read_triage, regression_id, set_triage
from db.keeping.aged_parts import Part
from db.keeping.archive import Header, Run, run_line, to_bytes
from db.keeping.exporting import export_lines
from db.keeping.importing import Imported, import_lines
from db.keeping.retention import prune
from db.keeping.verify import verify_store
from db.storing.ingest import ingest_record
from roofwatch.store.archive_file import check_archive, read_archive, write_archive
from tests.builders import NOON, PROJECT, make_artefact, make_commit, make_measurement, make_record, make_regression
from tests.databases import TEMPLATE
from tests.db.reading.test_records import full_record

TRACE = bytes(range(256)) * 10_000
"""Longer than one piece."""


@pytest.fixture
def another_store(databases: Any) -> Iterator[Engine]:
    url: URL = databases.make(TEMPLATE)
    engine = create_engine(url)
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
    trust_repository(store, "owner/name", PROJECT, ["refs/heads/main"], actor="a test")
    now = datetime.now(UTC)
    prune(store, {Part.SAMPLES: 1, Part.TELEMETRY: 1}, now=now, is_dry_run=False, actor="a test")
    return records


def exported(store: Engine) -> list[bytes]:
    return list(export_lines(store, now=NOON))


def take(store: Engine, path: Path, *, takes_trust: bool = True) -> Imported:
    manifest = check_archive(path)
    return import_lines(
        store, read_archive(path), takes_trust=takes_trust, actor="a test", source_sha256=manifest.sha256
    )


def pack(path: Path, lines: list[bytes]) -> Path:
    path.write_bytes(zstandard.compress(b"".join(lines)))
    return path


def sealed(lines: list[bytes]) -> list[bytes]:
    """With a manifest that says of the lines what is true."""
    counts: dict[str, int] = {}
    for line in lines:
        kind = line.split(b'"')[3].decode()
        counts[kind] = counts.get(kind, 0) + 1
    manifest = {"kind": "manifest", "counts": counts, "sha256": sha256(b"".join(lines)).hexdigest()}
    return [*lines, orjson.dumps(manifest) + b"\n"]


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
        "m.sample_count, m.is_memory_bound FROM measurement m JOIN run r ON r.number = m.run_number "
        "JOIN series s ON s.id = m.series_id ORDER BY 1, 2, 3",
        "SELECT r.run_id, sha256(x.content) FROM sample_set x JOIN run r ON r.number = x.run_number ORDER BY 1, 2",
        "SELECT name FROM project ORDER BY 1",
        "SELECT sha, kernel, verdict, state, person, reason, changed_at FROM triage",
    ):
        with store.connect() as before, another_store.connect() as after:
            assert after.execute(text(query)).all() == before.execute(text(query)).all(), query


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


HEADER = to_bytes(Header(made_at=NOON, schema_revision="0009"))


def run_of(record: RunRecord) -> bytes:
    head = Run(is_quarantined=False, content_hash=record.content_hash, ingested_at=NOON, record={})
    return run_line(head, record.to_json())


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (lambda data: data[:-20], "damaged|ends too early"),
        (lambda data: data[: len(data) // 2], "damaged|ends too early"),
        (lambda data: data[:40] + bytes([data[40] ^ 1]) + data[41:], "damaged|does not hold what it says"),
        (lambda _: b"", "ends too early"),
        (lambda _: b"PK\x03\x04 no export", "damaged, or no export"),
        (lambda _: gzip.compress(b"x"), "damaged, or no export"),
        (lambda _: zstandard.compress(b"no line of ours\n"), "not a line of an export"),
        (lambda data: data + data, "goes on after its end"),
    ],
)
def test_a_file_that_is_not_whole_is_not_believed(tmp_path: Path, damage: Any, complaint: str) -> None:
    path = tmp_path / "store.zst"
    write_archive(path, sealed([HEADER, run_of(make_record(1))]))
    assert check_archive(path).counts == {"header": 1, "run": 1}

    path.write_bytes(damage(path.read_bytes()))

    with pytest.raises(StoreError, match=complaint):
        check_archive(path)


def test_a_file_with_a_line_more_or_less_is_not_believed(tmp_path: Path) -> None:
    lines = sealed([HEADER, run_of(make_record(1)), run_of(make_record(2))])

    for changed in ([*lines[:1], *lines[2:]], [*lines[:2], lines[1], *lines[2:]]):
        with pytest.raises(StoreError, match="does not hold what it says"):
            check_archive(pack(tmp_path / "store.zst", changed))


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ({"kind": "triage", "project": "p"}, "triage: regression_id: Field required"),
        ({"kind": "trusted_repository", "repository": "a", "project": "b", "refs": [], "created_at": NOON}, "refs"),
        ({"kind": "audit", "at": "yesterday", "actor": "a", "action": "b", "subject": "c"}, "audit: at"),
        (
            {"kind": "run", "is_quarantined": False, "content_hash": "x", "ingested_at": NOON, "record": {}},
            "run: content_hash",
        ),
    ],
)
def test_a_line_that_says_what_cannot_be_is_named(tmp_path: Path, line: dict[str, Any], complaint: str) -> None:
    path = pack(tmp_path / "store.zst", sealed([HEADER, orjson.dumps(line) + b"\n"]))

    with pytest.raises(StoreError, match=rf"store.zst: line 2: .*{complaint}"):
        list(read_archive(path))


def test_json_that_is_nested_without_end_is_refused(tmp_path: Path) -> None:
    deep = b'{"kind":"run","record":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n"

    with pytest.raises(StoreError, match="line 2: run: "):
        list(read_archive(pack(tmp_path / "store.zst", sealed([HEADER, deep]))))


def test_a_line_without_end_is_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("roofwatch.store.archive_file._LINE_BYTES", 2**21)

    with pytest.raises(StoreError, match="a line of more than 2097152 bytes"):
        check_archive(pack(tmp_path / "store.zst", [b"x" * 2**24]))


def test_what_the_store_refuses_is_named_by_its_line(store: Engine, tmp_path: Path) -> None:
    run = {"kind": "run", "is_quarantined": False, "content_hash": "0" * 64, "ingested_at": NOON}
    deed = dict.fromkeys(("person", "project", "before", "after", "reason"))
    hostile: list[tuple[dict[str, Any], str]] = [
        (run | {"record": {}}, "not a roofwatch record"),
        (run | {"record": make_record().model_dump(mode="json")}, "has not the content that its sha256 is of"),
        (
            {"kind": "audit", "at": NOON, "actor": "a\0b", "action": "b", "subject": "c", **deed},
            "audit: the database refuses a value",
        ),
    ]

    for line, complaint in hostile:
        path = pack(tmp_path / "store.zst", sealed([HEADER, orjson.dumps(line) + b"\n"]))
        with pytest.raises((StoreError, RecordError), match=f"line 2: .*{complaint}"):
            take(store, path)
