"""Runs that are cut short and gone on with: nothing is measured twice, and nothing is lost."""

import json
import os
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from roofwatch.collector.runs.journal import ALONE, Journal, journal_path, make_header
from roofwatch.collector.runs.measure import measure
from roofwatch.collector.runs.run_plan import RunPlan
from roofwatch.collector.suite import SuiteAt
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.model.errors import JournalError
from roofwatch.model.machine import Outcome
from roofwatch.model.measurement import Block
from roofwatch.model.record import RunRecord
from roofwatch.model.timing_method import SamplingPlan
from tests.collector.conftest import SUITES, by_kernel, suite_of
from tests.roofwatch.command import Done, roofwatch, started_roofwatch

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forked_servers")]

QUICK = SamplingPlan(warmup_ms=1, budget_ms=2, max_samples=20)
PLAN = RunPlan(device="cpu", targets=("sm_90",), block_count=2, sampling=QUICK, has_profiles=True)

Uncut = tuple[RunRecord, list[bytes]]
"""A run that was not cut short, and the lines of its journal."""


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> SuiteAt:
    """A suite outside of any repository, whose other files decide whether a run may go on."""
    return suite_of(shutil.copy(SUITES / "bench_good.py", tmp_path_factory.mktemp("suite")))


@pytest.fixture(scope="module")
def uncut(
    fork_server: ForkServer, good: SuiteAt, tmp_path_factory: pytest.TempPathFactory
) -> Uncut:
    path = tmp_path_factory.mktemp("uncut") / "record.json.journal"
    with Journal(path, make_header({ALONE: good}, PLAN)) as journal:
        (record,) = measure([good], PLAN, fork_server=fork_server, journal=journal)
        return record, path.read_bytes().splitlines(keepends=True)


def without_times(record: RunRecord) -> dict[str, Any]:
    timed = {"ceilings", "finished_at", "measurements", "profiles", "spent_ns"}
    return record.model_dump(mode="json", exclude=timed) | {
        "outcomes": [(m.case_id, m.implementation, m.outcome) for m in record.measurements],
        "profiled": [
            (p.case_id, p.implementation, {row.name for row in p.rows}) for p in record.profiles
        ],
    }


def blocks_of(record: RunRecord) -> dict[tuple[str, str], tuple[Block, ...]]:
    return {(m.case_id, m.implementation): m.blocks for m in record.measurements}


@pytest.mark.parametrize("line_count", [3, 8, None])
def test_a_resumed_run_measures_only_what_is_missing(
    fork_server: ForkServer, good: SuiteAt, uncut: Uncut, tmp_path: Path, line_count: int | None
) -> None:
    record, lines = uncut
    path = tmp_path / "record.json.journal"
    path.write_bytes(
        b"".join(
            [*lines[:line_count], *(line[:50] for line in lines[line_count or len(lines) :][:1])]
        )
    )

    with Journal(path, make_header({ALONE: good}, PLAN), is_resumed=True) as journal:
        assert journal.result_count == len(lines[:line_count]) - 2, (
            "the header and the machine are no results"
        )
        before = {
            (step.case_id, step.implementation, step.blocks_before): step.taken.block
            for step in _steps(journal)
        }
        (resumed,) = measure([good], PLAN, fork_server=fork_server, journal=journal)
        assert journal.result_count == len(lines) - 2

    assert without_times(resumed) == without_times(record)
    assert resumed.ceilings == record.ceilings
    now = blocks_of(resumed)
    assert all(
        now[case, implementation][index] == block
        for (case, implementation, index), block in before.items()
    )
    assert {key: len(blocks) for key, blocks in now.items()} == {
        key: len(blocks) for key, blocks in blocks_of(record).items()
    }
    if line_count is None:
        assert now == blocks_of(record)
        assert resumed.profiles == record.profiles


@pytest.mark.parametrize(
    ("field", "refusal"), [("os", None), ("torch_version", "started on another machine")]
)
def test_a_run_is_resumed_on_a_machine_with_another_patch_level_but_no_other_torch(
    fork_server: ForkServer,
    good: SuiteAt,
    uncut: Uncut,
    tmp_path: Path,
    field: str,
    refusal: str | None,
) -> None:
    record, lines = uncut
    path = tmp_path / "record.json.journal"
    here = json.dumps({field: getattr(record.environment, field)})[1:-1].replace(": ", ":")
    there = f'"{field}":"another one"'
    changed = [line.replace(here.encode(), there.encode()) for line in lines]
    assert changed != lines
    path.write_bytes(b"".join(changed))

    with Journal(path, make_header({ALONE: good}, PLAN), is_resumed=True) as journal:
        if refusal is not None:
            with pytest.raises(JournalError, match=refusal):
                measure([good], PLAN, fork_server=fork_server, journal=journal)
            return
        (resumed,) = measure([good], PLAN, fork_server=fork_server, journal=journal)

    assert blocks_of(resumed) == blocks_of(record)


def _steps(journal: Journal, side: str = ALONE) -> list[Any]:
    return [entry.timed for entry in journal.entries(side) if entry.timed is not None]


@pytest.fixture
def one_core() -> Iterator[None]:
    """Cases are checked one after the other, so that it is known what was done before a run is
    ended.
    """
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    yield
    os.sched_setaffinity(0, cores)


def cut_run(
    tmp_path: Path,
    number: signal.Signals,
    *options: str,
    language: str = "torch",
    run: Callable[..., Done] = started_roofwatch,
) -> Done:
    """Not forked where anything is measured: the suite ends the parent of its worker's parent."""
    for name in ("bench_ends_run.py", "plus_one.py"):
        shutil.copy(SUITES / name, tmp_path)
    return run(
        "run",
        tmp_path / "bench_ends_run.py",
        "-o",
        tmp_path / "record.json.gz",
        "--blocks",
        "1",
        "--no-static",
        "--device",
        "cpu",
        *options,
        ENDS_RUN_DONE=str(tmp_path / "done"),
        ENDS_RUN_SIGNAL=str(int(number)),
        ENDS_RUN_LANGUAGE=language,
        PYTHONDONTWRITEBYTECODE="1",
    )


@pytest.mark.usefixtures("one_core")
def test_a_killed_run_is_resumed(tmp_path: Path) -> None:
    record_file = tmp_path / "record.json.gz"

    killed = cut_run(tmp_path, signal.SIGKILL)
    assert killed.status == -signal.SIGKILL
    assert not record_file.exists()
    done_before = Counter((tmp_path / "done").read_text().split())

    refused = cut_run(tmp_path, signal.SIGKILL, run=roofwatch)
    assert refused.status == 2
    assert (
        "holds an unfinished run with 2 results: --resume continues it; delete the file"
        in refused.error
    )
    other = cut_run(tmp_path, signal.SIGKILL, "--resume", "--threads", "2", run=roofwatch)
    assert other.status == 2
    assert "thread_count was 1 and is 2 now" in other.error

    resumed = cut_run(tmp_path, signal.SIGKILL, "--resume")
    assert resumed.status == 0, resumed.error
    assert "resuming with 2 results" in resumed.error
    record = RunRecord.read(record_file)
    assert [str(m.outcome) for m in record.measurements] == ["ok"] * 3
    assert not journal_path(record_file).exists()
    done = Counter((tmp_path / "done").read_text().split())
    assert done_before == {"first": 1, "second": 1}
    assert done - done_before == {"first": 1, "second": 2, "third": 2}, (
        "first was checked before: only timed"
    )


@pytest.mark.usefixtures("one_core")
@pytest.mark.parametrize(
    ("number", "status", "language"),
    [
        (signal.SIGTERM, 143, "torch"),
        (signal.SIGINT, 130, "torch"),
        (signal.SIGTERM, 143, "triton"),
    ],
    ids=["SIGTERM", "SIGINT", "SIGTERM while the interpreter checks"],
)
def test_a_stopped_run_says_how_to_resume_once_its_processes_are_gone(
    tmp_path: Path, number: signal.Signals, status: int, language: str
) -> None:
    stopped = cut_run(tmp_path, number, language=language)
    journal = journal_path(tmp_path / "record.json.gz")
    assert stopped.status == status, stopped.error
    assert (
        f"2 results are kept in {journal}: repeat the command with --resume to continue"
        in stopped.error
    )
    assert b"crashed" not in journal.read_bytes(), (
        "that a process was ended says nothing about its kernel"
    )
    environments = [process.info["environ"] or {} for process in psutil.process_iter(["environ"])]
    assert environments
    assert str(tmp_path / "done") not in [
        environment.get("ENDS_RUN_DONE") for environment in environments
    ]


def test_a_failure_during_timing_fails_only_its_own_case(fork_server: ForkServer) -> None:
    plan = RunPlan(device="cpu", targets=(), block_count=2, sampling=QUICK, timeout_s=3)

    (record,) = measure([suite_of("bench_faults.py")], plan, fork_server=fork_server)

    measured = by_kernel(record)
    assert {kernel: measurement.outcome for kernel, measurement in measured.items()} == {
        "is_killed": Outcome.CRASHED,
        "works_first": Outcome.OK,
        "asserts": Outcome.CRASHED,
        "hangs": Outcome.TIMED_OUT,
        "works_then": Outcome.OK,
        "exhausts_memory": Outcome.OUT_OF_MEMORY,
        "aborts": Outcome.CRASHED,
        "works_last": Outcome.OK,
    }
    assert "not done after 3.003 s; --timeout allows more" in (measured["hangs"].message or "")
    assert {len(m.blocks) for m in record.measurements if m.outcome is Outcome.OK} == {2}
    assert {accuracy.outcome for accuracy in record.accuracies} == {Outcome.OK}


@pytest.mark.parametrize("is_cut", [True, False], ids=["cut", "damaged"])
def test_a_resumed_pair_measures_again_only_blocks_that_lack_a_side(
    fork_server: ForkServer, good: SuiteAt, tmp_path: Path, is_cut: bool
) -> None:
    plan = RunPlan(kernels=("scale",), device="cpu", targets=(), block_count=3, sampling=QUICK)
    header = make_header({"base": good, "head": good}, plan)
    path = tmp_path / "pair.journal"
    with Journal(path, header) as journal:
        measure([good, good], plan, fork_server=fork_server, journal=journal)
        lines = path.read_bytes().splitlines(keepends=True)
    timed = [index for index, line in enumerate(lines) if b'"timed"' in line]
    assert len(timed) == 6
    if is_cut:
        del lines[timed[2] + 1 :]  # keeps both sides of the first block, one side of the second
    else:
        lines[timed[2]] = b"damaged\n"  # one side of the second block
    path.write_bytes(b"".join(lines))

    with Journal(path, header, is_resumed=True) as journal:
        before = {
            side: [step.taken.block for step in _steps(journal, side)] for side in ("base", "head")
        }
        records = measure([good, good], plan, fork_server=fork_server, journal=journal)

    assert sorted(len(blocks) for blocks in before.values()) == ([1, 2] if is_cut else [2, 3])
    taken = {
        str(record.pairing.side): record.measurements[0].blocks
        for record in records
        if record.pairing
    }
    assert {side: len(blocks) for side, blocks in taken.items()} == {"base": 3, "head": 3}
    for side, blocks in taken.items():
        assert blocks[0] == before[side][0]
        assert not set(before[side][1:]) & set(blocks)
    assert {record.pairing.pair_id for record in records if record.pairing} == {header.pair_id}
    assert [record.run_id for record in records] == [
        header.run_ids[side] for side in ("base", "head")
    ]
