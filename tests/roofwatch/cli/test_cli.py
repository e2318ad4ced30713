import contextlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from sqlalchemy import URL
from typer.core import TyperGroup

from roofwatch.cli.main import _PANELS, app
from roofwatch.model.record import SCHEMA_VERSION, RunRecord
from tests.builders import make_pair_of_records, make_record
from tests.databases import text_of
from tests.git_repository import commit_file, git, make_repository
from tests.roofwatch.command import SUITES, roofwatch, started_roofwatch


@pytest.fixture
def store_url(database_url: URL) -> str:
    return text_of(database_url)


def test_help_shows_the_first_six_commands_first() -> None:
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)

    assert list(group.commands)[:6] == ["init", "check", "run", "ab", "static", "diagnose"]


def test_help_shows_every_command_in_a_group() -> None:
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)

    for name, command in group.commands.items():
        panel = command.rich_help_panel  # type: ignore[attr-defined]
        assert panel in _PANELS, f"{name} is in no group of _PANELS in roofwatch/cli/main.py"


def test_help_loads_neither_torch_nor_database_nor_browser() -> None:
    script = (
        "import sys; sys.argv = ['roofwatch', '--help']\n"
        "from roofwatch.cli.main import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "print(sorted({'torch', 'triton', 'sqlalchemy', 'streamlit', 'pydantic', 'numpy'} & "
        "set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_suite_of_a_user_is_listed_without_installing_it() -> None:
    kernels = roofwatch("list", SUITES / "bench_good.py", "--json").parsed["kernels"]
    assert [kernel["name"] for kernel in kernels] == ["scale", "total"]
    assert [implementation["name"] for implementation in kernels[0]["implementations"]] == [
        "torch",
        "triton",
    ]
    assert [case["case_id"] for case in kernels[1]["cases"]] == [
        "total/n=500/float32/fwd",
        "total/n=500/float32/bwd",
    ]


@pytest.mark.slow
def test_a_run_that_is_ingested_twice_is_stored_once(tmp_path: Path, store_url: str) -> None:
    record_file = tmp_path / "out" / "record.json"
    few = ("--blocks", "1", "--targets", "sm_90,gfx942")
    ran = roofwatch("run", SUITES / "bench_good.py", "-o", record_file, *few, "--profile")
    assert ran.status == 0, ran.error
    assert "scale/n=1000/float32/fwd" in ran.output
    record = RunRecord.read(record_file)
    assert {(m.implementation, str(m.outcome)) for m in record.measurements} == {
        ("torch", "ok"),
        ("triton", "unsupported"),
    }
    assert {str(accuracy.outcome) for accuracy in record.accuracies} == {"ok"}
    assert [fact.target for fact in record.static_facts] == ["sm_90", "gfx942"]
    assert all(
        m.utilisation is not None for m in record.measurements if m.implementation == "torch"
    )
    assert record.preset == "survey"
    assert "aten::mul" in {row.name for profile in record.profiles for row in profile.rows}
    assert "launched kernels and operators" in ran.output

    stored = roofwatch("ingest", record_file, "--json", ROOFWATCH_DATABASE_URL=store_url).parsed
    [result] = stored["runs"]
    assert (result["run_id"], result["project"]) == (str(record.run_id), record.project)
    assert (result["was_new"], result["was_replaced"]) == (True, False)
    again = roofwatch("ingest", record_file, "--json", ROOFWATCH_DATABASE_URL=store_url).parsed
    assert again["runs"] == [{**result, "was_new": False}]
    status = roofwatch("db", "status", "--json", ROOFWATCH_DATABASE_URL=store_url).parsed
    assert status["row_counts"]["run"] == 1


def test_a_run_with_wrong_kernels_exits_with_1_after_their_names(tmp_path: Path) -> None:
    done = roofwatch(
        "run",
        SUITES / "bench_failing.py",
        "-o",
        tmp_path / "record.json",
        "--blocks",
        "1",
        "--no-static",
        "-k",
        "wrong_shape",
        "-k",
        "gives_*",
        "-k",
        "works",
        "-k",
        "unsupported",
    )
    assert done.status == 1
    lines = done.error.splitlines()
    assert [line.split("/")[0] for line in lines] == [
        "roofwatch: wrong_shape",
        "roofwatch: gives_nan",
        "roofwatch: gives_garbage",
        "roofwatch: gives_zeros",
    ]
    assert "incorrect: out has shape (128,); the reference has (64,)" in lines[0]
    outcomes = [
        str(measurement.outcome)
        for measurement in RunRecord.read(tmp_path / "record.json").measurements
    ]
    assert outcomes == ["incorrect"] * 4 + ["unsupported", "ok"]


def test_a_bad_file_among_good_ones_keeps_them_all_out_of_the_store(
    tmp_path: Path, store_url: str
) -> None:
    make_record().write(tmp_path / "good.json")
    (tmp_path / "half.json").write_bytes(make_record(1).to_json()[:500])
    done = roofwatch("ingest", tmp_path, ROOFWATCH_DATABASE_URL=store_url)
    assert done.status == 2
    assert "half.json: not a complete JSON document" in done.error
    status = roofwatch("db", "status", "--json", ROOFWATCH_DATABASE_URL=store_url).parsed
    assert status["row_counts"]["run"] == 0


@pytest.mark.parametrize(
    ("head_ns", "status", "word"), [(10_000, 0, "unchanged"), (12_000, 1, "regressed")]
)
def test_the_exit_status_of_a_comparison_is_its_verdict(
    tmp_path: Path, head_ns: float, status: int, word: str
) -> None:
    base, head = make_pair_of_records(base_median_ns=10_000, head_median_ns=head_ns, block_count=5)
    base.write(tmp_path / "base.json")
    head.write(tmp_path / "head.json")
    files = (tmp_path / "base.json", tmp_path / "head.json")
    compared, reported = (
        roofwatch("compare", *files),
        roofwatch("report", *files, "-o", tmp_path / "comment.md"),
    )
    assert (compared.status, reported.status) == (status, status)
    assert word in compared.output
    assert roofwatch("compare", *files, "--json").parsed["exit_code"] == status
    comment = (tmp_path / "comment.md").read_text()
    assert comment.startswith(("### ❌ 1 of 1 benchmark slower", "**✅ No change in 1 benchmark"))
    assert "<!--" not in comment, "a pasted report must not be taken for a posted one"
    assert roofwatch("report", *files).output == comment


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Three commits of a suite: as it is, with a gradient that is wrong, and that again."""
    folder = make_repository(tmp_path / "project")
    good = (SUITES / "bench_good.py").read_text()
    for text in (
        good,
        good.replace("return (x * x).sum()", "return x.sum()"),
        good + "\n# the same\n",
    ):
        commit_file(folder, "bench_layers.py", text)
    return folder


@pytest.mark.slow
def test_the_checkouts_of_two_revisions_are_removed_after_their_comparison(
    repository: Path,
) -> None:
    benchmark, records = repository / "bench_layers.py", repository.parent / "records"
    done = roofwatch(
        "ab",
        benchmark,
        "--base",
        "HEAD~2",
        "--head",
        "HEAD~1",
        "--blocks",
        "3",
        "--no-static",
        "-o",
        records,
        "--budget",
        "0",
        "--json",
    )
    assert done.status == 1, done.error
    base, head = (RunRecord.read(Path(file)) for file in done.parsed["records"])
    assert base.pairing is not None
    assert head.pairing is not None
    assert base.pairing.pair_id == head.pairing.pair_id
    assert (base.commit.first_parent_count, head.commit.first_parent_count) == (1, 2)
    assert [
        len(m.blocks) for m in base.measurements if m.case_id.startswith("scale") and m.blocks
    ] == [3]
    reasons = {
        judged["subject"]["case_id"]: judged["reason"]
        for judged in done.parsed["judgement"]["cases"]
    }
    assert reasons["total/n=500/float32/fwd"] == "wrong_result"
    assert len(git(repository, "worktree", "list").splitlines()) == 1


@pytest.mark.slow
def test_a_run_of_uncommitted_changes_is_not_part_of_the_history(repository: Path) -> None:
    benchmark = repository / "bench_layers.py"
    briefly = ("--blocks", "1", "--no-static", "-k", "scale", "-o", repository.parent / "records")
    committed = roofwatch("run", benchmark, *briefly)
    benchmark.write_text(benchmark.read_text() + "# changed\n")
    changed = roofwatch("run", benchmark, *briefly)
    alone = Path(shutil.copy(benchmark, repository.parent))
    outside = roofwatch("run", alone, *briefly)

    assert {done.status for done in (committed, changed, outside)} == {0}, (
        committed.error + changed.error
    )
    assert "not part of the history" not in committed.output
    assert changed.output.count("the work tree is dirty: this run is stored") == 1
    assert outside.output.count("there is no commit here: this run is stored and shown") == 1


def test_the_schema_is_printed() -> None:
    assert roofwatch("schema").parsed["title"] == f"roofwatch RunRecord {SCHEMA_VERSION}"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["run", "gone.py"], "gone.py: no such file or folder"),
        (["static", SUITES / "bench_good.py", "--targets", "h100"], "target 'h100' is not known"),
        (["run", SUITES / "bench_good.py", "-k", "nothing"], "the suite has scale, total"),
        (["ingest", "gone.json"], "gone.json: cannot be read: No such file"),
        (["compare", "gone.json", "gone.json"], "gone.json: cannot be read"),
        (["run", SUITES / "bench_good.py", "-o", "/proc/nowhere/x.json"], "nothing was measured"),
        (["ab", SUITES / "bench_good.py", "--base", "no-such-revision"], "no-such-revision"),
        (
            ["show", "series", "--project", "p", "--metric", "tflops"],
            "the metrics are median_ns, flop_per_s",
        ),
    ],
)
def test_bad_input_is_one_line_with_exit_status_2(
    tmp_path: Path, arguments: list[str | Path], expected: str
) -> None:
    done = roofwatch(*arguments, cwd=tmp_path, ROOFWATCH_DATA_DIR=str(tmp_path / "data"))
    assert done.status == 2
    assert expected in done.error
    assert done.error.count("\n") == 1
    assert "Traceback" not in done.error


def test_debug_shows_where_an_error_was_raised() -> None:
    assert "Traceback" in roofwatch("--debug", "compare", "gone.json", "gone.json").error


def test_a_command_that_needs_an_extra_says_which(tmp_path: Path) -> None:
    (tmp_path / "sqlalchemy.py").write_text(
        "raise ModuleNotFoundError('no sqlalchemy', name='sqlalchemy')\n"
    )
    make_record().write(tmp_path / "record.json")
    done = started_roofwatch("ingest", tmp_path / "record.json", PYTHONPATH=str(tmp_path))
    assert done.status == 2
    assert (
        done.error == "roofwatch: this command needs sqlalchemy; install it with: pip install "
        "'roofwatch[server]'\n"
    )


def test_a_file_of_ours_that_is_missing_is_no_extra(tmp_path: Path) -> None:
    """A checkout in the middle of a rebase asked for an extra."""
    (tmp_path / "sqlalchemy.py").write_text(
        "raise ModuleNotFoundError('no such module', name='roofwatch.db.gone')\n"
    )
    make_record().write(tmp_path / "record.json")
    done = started_roofwatch("ingest", tmp_path / "record.json", PYTHONPATH=str(tmp_path))
    assert done.status == 2
    assert "installation is incomplete" in done.error
    assert "roofwatch[" not in done.error


def test_an_interrupted_run_stops_its_workers(tmp_path: Path) -> None:
    """The suite says that it hangs by making a file, which it does from inside a worker."""
    suite = tmp_path / "bench_hang.py"
    suite.write_text(
        (SUITES / "bench_good.py").read_text()
        + "\nimport os, pathlib, time\n"
        + f"pathlib.Path({str(tmp_path / 'pid')!r}).write_text(str(os.getpid()))\n"
        + "time.sleep(1000)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", "from roofwatch.cli.main import main; main()", "list", str(suite)],
        stderr=subprocess.PIPE,
    )
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text():
        assert process.poll() is None
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=0.02)  # it needs this core
    worker = int((tmp_path / "pid").read_text())
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 143
    with pytest.raises(ProcessLookupError):
        os.kill(worker, 0)
