"""The file of an export is not believed before it has proved to be whole, and its lines not before they make sense."""

import gzip
from hashlib import sha256
from pathlib import Path
from typing import Any

import orjson
import pytest
import zstandard
from sqlalchemy import Engine

from roofwatch.collector.errors import RecordError
from roofwatch.collector.record.record import RunRecord
from roofwatch.db.errors import StoreError
from roofwatch.db.maintenance.archive import Header, Run, run_line, to_bytes
from roofwatch.store.archive_file import check_archive, read_archive, write_archive
from tests.builders import NOON, PROJECT, make_record
from tests.db.maintenance.test_export import take


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
        ({"kind": "alert", "project": PROJECT, "severity": "loud"}, "alert: rule: Field required"),
        ({"kind": "bisection", "project": PROJECT}, "bisection: bisection_id: Field required"),
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
