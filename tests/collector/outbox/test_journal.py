"""The journal of an unfinished run."""

import errno
import tempfile
from pathlib import Path
from typing import Any

import pytest

from roofwatch.collector.runs.journal import Entry, Header, Journal, journal_path, make_header
from roofwatch.collector.runs.run_plan import RunPlan
from roofwatch.collector.suite import SuiteAt
from roofwatch.model.errors import JournalError
from roofwatch.model.measurement import Timer
from roofwatch.model.suite_source import SuiteSource
from tests.builders import make_accuracy, make_ceiling, make_commit, make_environment


def header_with(
    *, side: str = "run", commit: int = 0, project: str = "example", code: str = "", **plan: Any
) -> Header:
    """The header of a run of a suite whose only file holds this code."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "bench_example.py"
        file.write_text(code)
        suite = SuiteAt(SuiteSource(file), make_commit(commit), project)
        return make_header({side: suite}, RunPlan(**plan))


def add(journal: Journal, *names: str) -> None:
    for name in names:
        journal.append(
            Entry(spent_ns={"check": 5}, accuracy=make_accuracy(f"{name}/n=1/float32/fwd"))
        )


def write(path: Path, *names: str) -> None:
    """A journal with checks of these kernels."""
    with Journal(path, header_with()) as journal:
        add(journal, *names)


def names(journal: Journal) -> list[str]:
    return [
        entry.accuracy.case_id.split("/")[0]
        for entry in journal.entries()
        if entry.accuracy is not None
    ]


def resume(path: Path, **fields: Any) -> Journal:
    return Journal(path, header_with(**fields), is_resumed=True)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return journal_path(tmp_path / "deep" / "record.json.gz")


def write_first_run(path: Path) -> Header:
    """Write three entries of one side and one of the other; return the header."""
    header = header_with()
    with Journal(path, header) as journal:
        journal.append(Entry(environment=make_environment()))
        journal.append(Entry(spent_ns={"ceilings": 7}, ceilings=(make_ceiling(),)))
        journal.append(Entry(side="head", environment=make_environment()))
        add(journal, "a")
        assert journal.result_count == 2, "a description of the machine is no result"
    return header


def test_a_resumed_journal_has_the_header_of_the_first_run(path: Path) -> None:
    header = write_first_run(path)

    with resume(path) as resumed:
        assert resumed.header == header


def test_a_resumed_journal_has_all_entries_of_its_side(path: Path) -> None:
    write_first_run(path)

    with resume(path) as resumed:
        first, second, third = resumed.entries()
    assert (first.environment, second.ceilings) == (make_environment(), (make_ceiling(),))
    assert third.accuracy == make_accuracy("a/n=1/float32/fwd")
    assert [entry.spent_ns for entry in (first, second, third)] == [
        {},
        {"ceilings": 7},
        {"check": 5},
    ]


def test_results_are_not_overwritten(path: Path) -> None:
    write(path, "a", "b")
    before = path.read_bytes()

    with pytest.raises(JournalError, match=r"unfinished run with 2 results: --resume .*; delete"):
        Journal(path, header_with())

    assert path.read_bytes() == before
    path.unlink()
    Journal(path, header_with()).close()


@pytest.mark.parametrize("is_resumed", [False, True])
def test_a_killed_run_without_results_does_not_block_another(path: Path, is_resumed: bool) -> None:
    killed = Journal(path, header_with(timer=Timer.CUPTI))
    killed.append(Entry(environment=make_environment()))
    killed.close()
    assert path.exists()

    other = header_with()
    with Journal(path, other, is_resumed=is_resumed) as journal:
        assert (journal.header, journal.entries()) == (other, ())
    assert not path.exists(), "it holds no result"


def test_complete_lines_of_a_cut_journal_count(path: Path) -> None:
    write(path, "a", "b", "c")
    content = path.read_bytes()
    ends = [end for end in range(len(content) + 1) if content[:end].endswith(b"\n")]

    for cut in [*range(ends[0], len(content), 7), ends[1] - 1]:
        path.write_bytes(content[:cut])
        count = sum(end <= cut for end in ends) - 1
        with resume(path) as journal:
            assert names(journal) == ["a", "b", "c"][:count]
            add(journal, "d")
        with resume(path) as journal:
            assert names(journal) == [*["a", "b", "c"][:count], "d"]


@pytest.mark.parametrize("start", [b"", b'{"harness', b"\0" * 4096, b"\0\n"])
def test_a_journal_without_a_complete_first_line_is_replaced(path: Path, start: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(start)
    write(path, "a")
    with resume(path) as journal:
        assert names(journal) == ["a"]


@pytest.mark.parametrize(
    ("now", "reason"),
    [
        ({"commit": 1}, f"the commit was {make_commit().sha[:12]} and is"),
        ({"code": "# changed"}, "the hash of the suite's files was "),
        ({"project": "other"}, "the project was example and is other now"),
        ({"side": "base"}, "the commit of the base was None and is"),
        (
            {"block_count": 5, "device": "cuda"},
            "block_count was 3 and is 5 now; device was None and",
        ),
    ],
)
def test_another_run_is_not_resumed(path: Path, now: dict[str, Any], reason: str) -> None:
    write(path, "a")
    with pytest.raises(JournalError) as caught:
        resume(path, **now)
    assert reason in str(caught.value)
    with resume(path) as journal:
        assert names(journal) == ["a"]


def test_a_journal_of_another_roofwatch_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(path, "a")
    with monkeypatch.context() as patch:
        patch.setattr("roofwatch.collector.runs.journal.HARNESS_VERSION", "0.0.1")
        with pytest.raises(JournalError, match=r"roofwatch was .* and is 0\.0\.1 now"):
            resume(path)
    path.write_bytes(path.read_bytes() + b'{"unknown": 1}\n')
    with pytest.raises(JournalError, match="damaged, or written by another version of roofwatch"):
        resume(path)


def test_a_damaged_line_does_not_lose_the_lines_after_it(path: Path) -> None:
    write(path, "a", "b", "c")
    lines = path.read_bytes().splitlines(keepends=True)
    lines[2] = lines[2][:20] + b"\0\xff\r" * 10 + lines[2][50:]
    path.write_bytes(b"".join(lines))

    with resume(path) as journal:
        assert (names(journal), journal.damaged_lines) == (["a", "c"], (3,))
        add(journal, "d")
    with resume(path) as journal:
        assert names(journal) == ["a", "c", "d"]


def test_results_below_a_damaged_header_are_not_overwritten(path: Path) -> None:
    write(path, "a")
    damaged = path.read_bytes()[9:]
    path.write_bytes(damaged)
    for is_resumed in (False, True):
        with pytest.raises(JournalError, match="first line is damaged"):
            Journal(path, header_with(), is_resumed=is_resumed)
    assert path.read_bytes() == damaged


@pytest.mark.parametrize("is_resumed", [False, True])
def test_two_runs_do_not_write_to_one_journal(path: Path, is_resumed: bool) -> None:
    with Journal(path, header_with()) as journal:
        add(journal, "a")
        with pytest.raises(JournalError, match="another run is writing there"):
            Journal(path, header_with(), is_resumed=is_resumed)
        add(journal, "b")
        assert names(journal) == ["a", "b"]


@pytest.mark.parametrize(
    ("error", "raised", "kept"),
    [
        (OSError(errno.ENOSPC, "full"), JournalError, ["a"]),
        (KeyboardInterrupt(), KeyboardInterrupt, ["a", "b"]),
    ],
    ids=["full disk", "interrupt after writing"],
)
def test_an_error_while_writing_loses_no_written_result(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    raised: type[BaseException],
    kept: list[str],
) -> None:
    def fail(_: int) -> None:
        raise error

    with Journal(path, header_with()) as journal:
        add(journal, "a")
        monkeypatch.setattr("os.fsync", fail)
        with pytest.raises(raised):
            add(journal, "b")
        monkeypatch.undo()

    with resume(path) as journal:
        assert names(journal) == kept
