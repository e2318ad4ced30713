"""The journal of a run that is not finished."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

from roofwatch.collector.errors import JournalError
from roofwatch.collector.outbox.journal import Journal, discard, journal_path, read_header
from roofwatch.collector.outbox.journal_entries import Header, MeasuredSuite
from tests.builders import NOON, make_accuracy, make_ceiling, make_commit, make_environment

ROOT = Path(__file__).parents[3]


def make_header(**fields: Any) -> Header:
    suite = MeasuredSuite(run_id=uuid.uuid4(), project="example", sha=make_commit().sha, sources="0")
    defaults: dict[str, Any] = {
        "harness_version": "1",
        "started_at": NOON,
        "asked": {"block_count": 3, "device": None},
        "suites": {"run": suite},
    }
    return Header(**defaults | fields)


def keep(journal: Journal, *case_ids: str) -> None:
    for case_id in case_ids:
        journal.log().append({"check": 5}, accuracy=make_accuracy(f"{case_id}/n=1/float32/fwd"))


def kept(journal: Journal) -> list[str]:
    return [entry.accuracy.case_id.split("/")[0] for entry in journal.log().past if entry.accuracy is not None]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return journal_path(tmp_path / "deep" / "record.json.gz")


def test_what_was_kept_is_there_again_with_the_ids_and_the_start_of_the_run(path: Path) -> None:
    header = make_header()
    with Journal.begin(path, header) as journal:
        journal.log().append({}, environment=make_environment())
        journal.log().append({"ceilings": 7}, ceilings=(make_ceiling(),))
        keep(journal, "a")

    with Journal.resume(path, make_header(started_at=NOON.replace(year=2030))) as resumed:
        assert resumed.header == header
        past = resumed.log().past
    assert (past[0].environment, past[1].ceilings) == (make_environment(), (make_ceiling(),))
    assert past[2].accuracy == make_accuracy("a/n=1/float32/fwd")
    assert [entry.spent_ns for entry in past] == [{}, {"ceilings": 7}, {"check": 5}]


def test_each_side_has_its_own_part(path: Path) -> None:
    suite = make_header().suites["run"]
    with Journal.begin(path, make_header(suites={"base": suite, "head": suite})) as journal:
        journal.log("head").append({}, environment=make_environment())
        assert len(journal.log("head").past) == 1
        assert journal.log("base").past == ()


def test_an_unfinished_run_is_not_written_over_in_silence(path: Path) -> None:
    with Journal.begin(path, make_header()) as journal:
        keep(journal, "a", "b")
    before = path.read_bytes()

    with pytest.raises(JournalError, match=r"an unfinished run with 2 results is there: --resume .*, --discard"):
        Journal.begin(path, make_header())

    assert path.read_bytes() == before
    discard(path)
    Journal.begin(path, make_header()).close()


def test_without_an_unfinished_run_there_is_nothing_to_resume_and_a_new_one_begins(path: Path) -> None:
    with Journal.resume(path, make_header()) as journal:
        assert journal.result_count == 0


def test_a_run_that_measured_nothing_leaves_nothing(path: Path) -> None:
    with Journal.begin(path, make_header()):
        assert path.exists()
    assert not path.exists()


def test_wherever_a_write_was_cut_the_whole_lines_before_count_and_no_half_one(path: Path) -> None:
    with Journal.begin(path, make_header()) as journal:
        keep(journal, "a", "b", "c")
    whole = path.read_bytes()
    ends = [end for end in range(len(whole) + 1) if whole[:end].endswith(b"\n")]

    for cut in range(ends[0], len(whole), 7):
        path.write_bytes(whole[:cut])
        count = sum(end <= cut for end in ends) - 1
        with Journal.resume(path, make_header()) as journal:
            assert kept(journal) == ["a", "b", "c"][:count]
            keep(journal, "d")
        with Journal.resume(path, make_header()) as journal:
            assert kept(journal) == [*["a", "b", "c"][:count], "d"]


@pytest.mark.parametrize("start", [b"", b"0123456789abcdef {", b"\0" * 4096])
def test_a_journal_without_a_whole_first_line_holds_nothing_and_is_begun_anew(path: Path, start: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(start)
    with Journal.begin(path, make_header()) as journal:
        keep(journal, "a")
    with Journal.resume(path, make_header()) as journal:
        assert kept(journal) == ["a"]


def test_a_damaged_line_costs_its_own_result_alone(path: Path) -> None:
    with Journal.begin(path, make_header()) as journal:
        keep(journal, "a", "b", "c")
    path.write_bytes(path.read_bytes().replace(b'"b/', b'"B/'))
    with Journal.resume(path, make_header()) as journal:
        assert kept(journal) == ["a", "c"]


def suite_with(**fields: Any) -> dict[str, MeasuredSuite]:
    return {"run": make_header().suites["run"].model_copy(update=fields)}


@pytest.mark.parametrize(
    ("now", "reason"),
    [
        ({"suites": suite_with(sha=make_commit(1).sha)}, f"the commit was {make_commit().sha[:12]} then and is"),
        ({"suites": suite_with(sources="1")}, "files of the suite were changed since"),
        ({"suites": suite_with(project="other")}, "the project was example then and is other now"),
        ({"suites": {"base": make_header().suites["run"]}}, "it is of run, and this is base"),
        ({"asked": {"block_count": 5, "device": None}}, "block_count was 3 then and is 5 now"),
        ({"asked": {"block_count": 3, "device": "cuda"}}, "device was None then and is cuda now"),
        ({"harness_version": "2"}, "roofwatch was 1 then and is 2 now"),
    ],
)
def test_a_run_of_something_else_is_not_gone_on_with_and_the_reason_is_said(
    path: Path, now: dict[str, Any], reason: str
) -> None:
    with Journal.begin(path, make_header()) as journal:
        keep(journal, "a")
    with pytest.raises(JournalError) as caught:
        Journal.resume(path, make_header(**now))
    assert reason in str(caught.value)
    with Journal.resume(path, make_header()) as journal:
        assert kept(journal) == ["a"]


def test_a_journal_of_another_version_is_refused_in_words(path: Path) -> None:
    with Journal.begin(path, make_header()) as journal:
        keep(journal, "a")
        journal._append_line(make_environment())  # a line of a shape that is not known here
    with pytest.raises(JournalError, match=r"damaged, or written by another version of roofwatch"):
        Journal.resume(path, make_header())


@pytest.mark.parametrize("take", [Journal.begin, Journal.resume])
def test_two_runs_do_not_write_to_one_place(path: Path, take: Any) -> None:
    with Journal.begin(path, make_header()) as journal:
        keep(journal, "a")
        with pytest.raises(JournalError, match="another run is writing there"):
            take(path, make_header())
        with pytest.raises(JournalError, match="another run is writing there"):
            discard(path)
        keep(journal, "b")
        assert kept(journal) == ["a", "b"]


def test_the_header_is_read_without_the_lock(path: Path) -> None:
    assert read_header(path) is None
    header = make_header()
    with Journal.begin(path, header):
        assert read_header(path) == header


LIMIT_BYTES = 3_000


FILL_THE_DISK = """
import resource, sys
from pathlib import Path
from roofwatch.collector.errors import JournalError
from roofwatch.collector.outbox.journal import Journal
from tests.collector.outbox.test_journal import keep, make_header
path, limit = Path(sys.argv[1]), int(sys.argv[2])
journal = Journal.begin(path, make_header())
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
count = 0
try:
    while True:
        keep(journal, f"a{count}")
        count += 1
except JournalError as error:
    print(count, error)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
try:
    keep(journal, "later")
except JournalError as error:
    print(error)
"""


@pytest.mark.skipif(resource.getrlimit(resource.RLIMIT_FSIZE)[1] != resource.RLIM_INFINITY, reason="files are limited")
@pytest.mark.slow
def test_a_full_disk_is_one_clear_error_and_loses_nothing_that_was_written(path: Path) -> None:
    """A limit makes the system refuse to write more, as a full disk does, in the middle of a line."""
    done = subprocess.run(
        [sys.executable, "-c", FILL_THE_DISK, str(path), str(LIMIT_BYTES)],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env=os.environ.copy(),
    )
    first, second = done.stdout.splitlines()
    count = int(first.split()[0])
    assert count > 1
    assert f"{path}: cannot be written: File too large" in first
    assert "could not be written a moment ago" in second
    assert path.read_bytes().endswith(b"\n")
    with Journal.resume(path, make_header()) as journal:
        assert kept(journal) == [f"a{number}" for number in range(count)]


def test_an_interrupt_after_the_first_result_was_written_does_not_lose_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    header = make_header()
    with Journal.begin(path, header) as journal:
        monkeypatch.setattr(os, "fsync", interrupt)
        with pytest.raises(KeyboardInterrupt):
            keep(journal, "a")
        monkeypatch.undo()
        assert journal.result_count == 1

    with Journal.resume(path, header) as journal:
        assert kept(journal) == ["a"]


def test_an_interrupt_within_a_line_costs_that_line_and_nothing_is_written_behind_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write_half(fd: int, content: memoryview) -> int:
        written(fd, content[: len(content) // 2])
        raise KeyboardInterrupt

    written = os.write
    header = make_header()
    with Journal.begin(path, header) as journal:
        keep(journal, "a")
        monkeypatch.setattr(os, "write", write_half)
        with pytest.raises(KeyboardInterrupt):
            keep(journal, "b")
        monkeypatch.undo()
        with pytest.raises(JournalError, match="could not be written a moment ago"):
            keep(journal, "c")
        assert journal.result_count == 1

    with Journal.resume(path, header) as journal:
        keep(journal, "b")
    with Journal.resume(path, header) as journal:
        assert kept(journal) == ["a", "b"]


def leave(path: Path, journal: Journal) -> None:
    """As a process that is killed leaves it, which closes nothing."""
    content = path.read_bytes()
    journal.close()
    path.write_bytes(content)


def test_a_run_that_ended_when_its_machine_was_described_leaves_nothing_behind(path: Path) -> None:
    with Journal.begin(path, make_header(asked={"timer": "cupti"})) as journal:
        journal.log().append({"start": 5}, environment=make_environment())
        assert journal.result_count == 0

    assert not path.exists()


def test_one_that_was_killed_there_is_in_nobodys_way(path: Path) -> None:
    wrong, right = make_header(asked={"timer": "cupti"}), make_header(asked={"timer": None})
    for go_on in (Journal.begin, Journal.resume):
        killed = Journal.begin(path, wrong)
        killed.log().append({"start": 5}, environment=make_environment())
        leave(path, killed)

        with go_on(path, right) as journal:
            assert journal.header == right
            assert journal.log().past == ()


def test_what_came_back_of_it_is_kept_beside_the_machine_and_counted_without_it(path: Path) -> None:
    with Journal.begin(path, make_header()) as journal:
        journal.log().append({}, environment=make_environment())
        journal.log().append({}, ceilings=(make_ceiling(),))
        keep(journal, "a")
        assert journal.result_count == 2

    with pytest.raises(JournalError, match="an unfinished run with 2 results is there"):
        Journal.begin(path, make_header())
