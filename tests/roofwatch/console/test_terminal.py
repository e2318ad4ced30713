"""Output of commands: untrusted text, tables, a full disk and a closed pipe."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import shlex
import struct
import subprocess
import sys
import termios
from contextlib import suppress
from dataclasses import replace
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import IO, Any

import pytest
from rich.table import Table
from rich.text import Text

from roofwatch.ci.changepoint.detect import SeriesNoise
from roofwatch.collector.runs.run_plan import Progress
from roofwatch.console.terminal import (
    console,
    make_table,
    print_error,
    print_json,
    print_note,
    print_table,
    progress,
    sparkline,
)
from roofwatch.console.wrapped_text import fit_columns, wrapped
from roofwatch.model.history import Series, SeriesPoint
from roofwatch.model.machine import Outcome
from roofwatch.model.measurement import Block, CacheState, Measurement, MemoryUse, Timer
from roofwatch.tables.run import (
    furthest_from_roof_first,
    launches,
    measurements,
    memory_use,
    profiles,
)
from roofwatch.tables.stored import runs_table, series_table
from tests.builders import (
    CASE_ID,
    NOON,
    make_activity,
    make_ceiling,
    make_commit_ref,
    make_environment,
    make_measurement,
    make_profile,
    make_record,
    make_series_key,
    make_static_facts,
)
from tests.dashboard.values import make_run_detail

HOSTILE = "\x1b]0;title\x07\x1b[2Jgone\u202e\r"


def check_is_harmless(shown: str) -> None:
    assert "gone" in shown
    assert all(character.isprintable() for line in shown.split("\n") for character in line)


def test_notes_keep_lines_without_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    print_note(f"norm:fire:fwd in /:+1:/x {HOSTILE}\n\tsecond [red]{HOSTILE}")

    shown = capsys.readouterr().out
    check_is_harmless(shown)
    assert shown.count("\n") == 2
    assert shown.startswith("norm:fire:fwd in /:+1:/x "), "names may look like emoji codes"
    assert "        second [red]" in shown


def test_json_escapes_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    said = {"name": f"{HOSTILE}\x9b31m\x7f\u2028\U000e0041 é ☃"}
    print_json(said)

    shown = capsys.readouterr().out
    check_is_harmless(shown)
    assert "é ☃" in shown
    assert json.loads(shown) == said


def test_messages_of_failed_kernels_keep_lines_without_control_characters(
    capsys: pytest.CaptureFixture[str],
) -> None:
    failed = make_measurement(
        outcome=Outcome.CRASHED, message=f"first [/b]{HOSTILE}\nsecond {HOSTILE}"
    )

    print_table(measurements(make_record(measurements=[failed])))

    shown = capsys.readouterr().out
    check_is_harmless(shown)
    assert [word for word in shown.split() if word in ("first", "second")] == ["first", "second"]
    assert not any("first" in line and "second" in line for line in shown.split("\n"))


def test_errors_are_one_harmless_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_error(f"refused:\n{HOSTILE}")

    shown = capsys.readouterr().err
    check_is_harmless(shown)
    assert shown.startswith("roofwatch: refused: ")
    assert shown.count("\n") == 1


def test_lasting_progress_lines_lose_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("measuring") as show:
        show(Progress(0, 0, f"block 3: {HOSTILE}", is_to_stay=True))

    check_is_harmless(capsys.readouterr().err)


def test_results_are_shown_as_they_come_at_a_terminal_only(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    result = Progress(1, 4, "scale/n=1/float32/fwd torch: 3 ms", is_result=True)
    with progress("measuring") as show:
        show(result)
    assert capsys.readouterr().err == ""

    monkeypatch.setenv("FORCE_COLOR", "1")
    with progress("measuring") as show:
        show(result)
    assert "scale/n=1/float32/fwd torch: 3 ms" in capsys.readouterr().err


COMMAND = shlex.join([sys.executable, "-c", "from roofwatch.cli.main import main; main()"])
FULL = "roofwatch: standard output cannot be written: No space left on device\n"


def shell(script: str, output: IO[str] | int = subprocess.PIPE) -> tuple[int, str]:
    """Exit status and standard error of a script in which $R is the command line."""
    done = subprocess.run(
        ["bash", "-c", script.replace("$R", COMMAND)],
        stdout=output,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        env={"PATH": "/usr/bin:/bin"},
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("script", "status", "error"),
    [
        ("$R schema >/dev/full", 2, FULL),
        ("$R read gone.json 2>/dev/full", 2, ""),
    ],
)
def test_a_full_disk_is_an_error_rather_than_a_regression(
    script: str, status: int, error: str
) -> None:
    assert shell(script) == (status, error)


def test_a_closed_pipe_ends_the_command_quietly() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as gone:
        assert shell("$R schema", gone) == (141, "")


def test_text_of_a_server_cannot_control_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    hostile: dict[str, Any] = {
        "run_id": "\x1b[2J",
        "runner_class": "[red]\x07",
        "outcome_counts": {"ok\x1b": 2},
    }
    run = replace(
        make_run_detail(0).summary, is_dirty=True, is_pair_side=True, is_unreachable=True, **hostile
    )

    print_table(runs_table([run]))

    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "\x07" not in shown
    assert "[red]" in shown
    assert "(dirty work tree) (side of a pair) (commit no longer on its branch)" in " ".join(
        shown.split()
    )


@pytest.fixture
def printed_series(capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    """Cells of two series of a metric that this version does not know, one row each."""
    points = (
        SeriesPoint(make_commit_ref(0), "a", NOON, Outcome.OK, 1.25),
        SeriesPoint(make_commit_ref(1), "b", NOON, Outcome.CRASHED, None),
        # a machine that cannot time it is no failure of the kernel
        SeriesPoint(make_commit_ref(2), "c", NOON, Outcome.UNSUPPORTED, None),
    )
    keys = [make_series_key("of_tomorrow", runner_class=name) for name in ("H100", "H200")]
    both = [Series(keys[0], points), Series(keys[1], points[1:])]
    noises = [None, SeriesNoise(0.0123, 0.0567)]
    print_table(series_table(list(zip(both, noises, strict=True))))
    rows = [line for line in capsys.readouterr().out.splitlines() if "rms_norm" in line]
    return [[cell.strip() for cell in row.strip("│").split("│")] for row in rows]


def test_series_are_listed_by_runner_class(printed_series: list[list[str]]) -> None:
    assert [row[1] for row in printed_series] == ["H100", "H200"]


def test_failures_of_a_series_are_counted(printed_series: list[list[str]]) -> None:
    assert [row[2:4] for row in printed_series] == [["3", "1"], ["2", "1"]]


def test_a_value_of_an_unknown_metric_is_shown_as_a_number(
    printed_series: list[list[str]],
) -> None:
    assert printed_series[0][4:] == ["▄", "1.25", make_commit_ref(0).short_sha, "", ""]


def test_a_series_without_a_value_still_has_its_noise(printed_series: list[list[str]]) -> None:
    assert printed_series[1][4:] == ["", "", "", "±1.2%", "5.7%"]


@pytest.mark.parametrize(("encoding", "shown"), [("utf-8", "▁ ▇"), ("ascii", ". #")])
def test_a_sparkline_has_a_gap_for_a_failure(
    monkeypatch: pytest.MonkeyPatch, encoding: str, shown: str
) -> None:
    monkeypatch.setattr("sys.stdout", TextIOWrapper(BytesIO(), encoding=encoding))

    assert sparkline([10.0, None, 30.0]) == shown


@pytest.mark.parametrize(("encoding", "shown"), [("utf-8", "▁▄▇▄"), ("ascii", ".=#=")])
def test_a_sparkline_has_plain_characters_where_the_output_has_no_others(
    monkeypatch: pytest.MonkeyPatch, encoding: str, shown: str
) -> None:
    monkeypatch.setattr("sys.stdout", TextIOWrapper(BytesIO(), encoding=encoding))

    assert sparkline([10.0, 20.0, 30.0, 20.0]) == shown


def on_a_gpu(**fields: Any) -> Measurement:
    block = Block(
        started_at=NOON,
        samples_ns=(3_000,),
        span_ns=(3_500,),
        host_ns=9_000,
        launch_delay_ns=6_000,
        kernel_count=2,
    )
    return make_measurement(timer=Timer.CUPTI, cache=CacheState.COLD, blocks=(block,), **fields)


def cells(table: Table | None) -> dict[str, str]:
    assert table is not None
    return {str(column.header): str(next(iter(column.cells))) for column in table.columns}


def test_a_measurement_without_a_gpu_has_no_table_of_launches() -> None:
    assert launches(make_record(measurements=[make_measurement()])) is None


def test_a_launch_has_each_of_its_times() -> None:
    shown = cells(launches(make_record(measurements=[on_a_gpu()])))

    assert (shown["timer"], shown["cache"], shown["kernels"]) == ("cupti", "cold", "2")
    assert (shown["busy"], shown["gaps"], shown["delay"], shown["host"]) == (
        "3 µs",
        "500 ns",
        "6 µs",
        "9 µs",
    )


def test_memory_is_shown_if_it_was_counted() -> None:
    memory = MemoryUse(
        peak_allocated_bytes=2**20,
        peak_reserved_bytes=2**21,
        allocation_count=1_234,
        fragmentation=0.125,
    )

    shown = cells(
        memory_use(
            make_record(
                measurements=[make_measurement(implementation="triton"), on_a_gpu(memory=memory)]
            )
        )
    )

    assert (shown["allocated"], shown["reserved"]) == ("1 MiB", "2 MiB")
    assert (shown["allocations"], shown["fragmentation"]) == ("1,234", "12.5%")
    unshared = memory.model_copy(update={"fragmentation": None})
    assert (
        cells(memory_use(make_record(measurements=[on_a_gpu(memory=unshared)])))["fragmentation"]
        == ""
    )
    assert memory_use(make_record(measurements=[on_a_gpu()])) is None


def test_the_longest_profiled_kernels_are_shown() -> None:
    rows = [
        make_activity(f"k{at} [red]", count=6, total_ns=total)
        for at, total in enumerate((5_000, 3_000, 1_000, 500))
    ]
    profile = make_profile(
        CASE_ID, *rows, busy_ns=10_000, span_ns=12_000, left_out_count=2, left_out_ns=500
    )

    table = profiles(make_record(profiles=[profile]))

    shown = {str(column.header): [str(cell) for cell in column.cells] for column in table.columns}
    assert shown["name"] == ["k0 [red]", "k1 [red]", "k2 [red]", "and 3 more"]
    assert shown["per call"] == ["2", "2", "2", ""]
    assert shown["total"] == ["5 µs", "3 µs", "1 µs", "1 µs"]
    assert shown["share of busy"] == ["50.0%", "30.0%", "10.0%", "10.0%"]


def test_a_narrow_table_breaks_no_name_inside_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    case_id = "squared_relu/n_rows=512,n_cols=4096/bfloat16/fwd"
    table = make_table(("case", "implementation"), [(case_id, "triton")])
    narrow = console(to_stderr=False)
    narrow.width = 50
    with narrow.capture() as captured:
        narrow.print(table)

    cells = [line.split("│")[1].strip() for line in captured.get().splitlines() if "│" in line]
    assert "".join(cells) == case_id
    assert all(cell.endswith((",", "/")) for cell in cells[:-1])


@pytest.mark.parametrize("width", [105, 160])
def test_columns_leave_room_for_names_without_a_slash(width: int) -> None:
    function = "_squared_relu_kernel"
    compiled = Text("18 regs, 100.0% by warps\nload 128, store 128")
    case_id = "squared_relu/n_rows=512,n_cols=4096/bfloat16/fwd"
    targets = [f"sm_{number}" for number in range(80, 86)]
    table = make_table(("function", "case", *targets), [(function, case_id, *[compiled] * 6)])
    narrow = console(to_stderr=False)
    narrow.width = width

    fit_columns(table, width)
    with narrow.capture() as captured:
        narrow.print(table)

    lines = captured.get().splitlines()
    assert max(map(len, lines)) <= width
    first_column = [line.split("│")[1].strip() for line in lines if "│" in line]
    assert first_column[0] == function


def test_the_fastest_implementation_of_the_case_furthest_from_its_roof_comes_first() -> None:
    near, far = "scale/n=1/float32/fwd", "scale/n=2/float32/fwd"
    rows = [
        make_measurement(near, implementation="triton", median_ns=100, utilisation=0.9),
        make_measurement(far, implementation="torch", median_ns=300, utilisation=0.1),
        make_measurement(far, implementation="triton", median_ns=200, utilisation=0.2),
    ]

    ordered = [(row.case_id, row.implementation) for row in furthest_from_roof_first(rows)]

    assert ordered == [(far, "triton"), (far, "torch"), (near, "triton")]


def test_a_run_on_a_gpu_shows_the_share_of_the_peak_beside_that_of_what_is_achievable() -> None:
    copy = make_ceiling(resource="memory", level="dram", per_s=2.4e12)
    record = make_record(
        measurements=[make_measurement(utilisation=0.8, bound="memory")],
        ceilings=(copy,),
        environment=make_environment(device_kind="cuda", device_name="NVIDIA H200"),
    )

    table = measurements(record)

    cells = {str(column.header): [str(cell) for cell in column.cells] for column in table.columns}
    assert cells["utilisation"] == ["80.0% (40%) memory"]
    assert "of the peak (datasheet)" in str(table.caption)


_PRINT_TABLES = """
import sys
from pathlib import Path
from roofwatch.model.record import RunRecord
from roofwatch.tables.run import of_run
from roofwatch.console.terminal import print_result
record = RunRecord.read(Path(sys.argv[1]))
print_result(None, *of_run(Path("record.json"), record), as_json=False)
"""


@pytest.mark.parametrize("width", [80, 100, 130, 160])
def test_a_run_breaks_no_word_in_a_terminal(width: int, tmp_path: Path) -> None:
    names = ("triton", "torch", "compile")
    record = make_record(
        measurements=[
            make_measurement(
                implementation=name, median_ns=3.46e6, utilisation=0.05, bound="memory"
            )
            for name in names
        ],
        static_facts=[make_static_facts(target=target) for target in ("sm_80", "sm_90", "gfx942")],
    )
    record.write(tmp_path / "record.json")

    shown = printed_at(width, [sys.executable, "-c", _PRINT_TABLES, str(tmp_path / "record.json")])

    assert all(len(line) <= width for line in shown.splitlines() if not line.startswith("record"))
    words = set(re.split(r"[\s/,│┃]+", shown))
    assert words >= {"implementation", *names, "utilisation", "registers", "spills"}
    assert words >= set(re.split("[/,]", CASE_ID))


def printed_at(width: int, command: list[str]) -> str:
    """What a command prints in a terminal of this width, without escape sequences."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 45, width, 0, 0))
    environment = {"PATH": os.environ["PATH"], "TERM": "xterm", "NO_COLOR": "1"}
    with subprocess.Popen(
        command, stdin=slave, stdout=slave, stderr=slave, env=environment
    ) as process:
        os.close(slave)
        chunks: list[bytes] = []
        # Linux ends the output of a terminal that nobody writes to with an error
        with suppress(OSError):
            while chunk := os.read(master, 65_536):
                chunks.append(chunk)
    os.close(master)
    assert process.returncode == 0
    return without_escapes(b"".join(chunks).decode())


def without_escapes(shown: str) -> str:
    return re.sub(r"\x1b(\[[0-9;?]*[A-Za-z]|\].*?\x1b\\)", "", shown)


@pytest.fixture
def narrow_table(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Lines below the first of a table that is wider than its terminal."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "48")
    rows = [("scale/n=1", "torch", "3 ms", "0.87"), ("scale/n=1", "triton", "12 ms", "1.1")]
    remark = ["  the clock changed"]
    print_table(
        make_table(
            ("case", "implementation", "median", "utilisation of the roof"),
            [rows[0], remark, rows[1], ("scale/n=2", *rows[1][1:])],
            left_column_count=2,
        )
    )
    lines = without_escapes(capsys.readouterr().out).splitlines()
    return [line.strip() for line in lines[1:]]


def test_a_table_that_cannot_fit_has_its_rows_under_headings(narrow_table: list[str]) -> None:
    assert narrow_table[:-1] == [
        "scale/n=1",
        "torch             3 ms",
        "the clock changed",
        "triton           12 ms",
        "scale/n=2",
        "triton           12 ms",
    ]


def test_a_table_that_cannot_fit_names_what_it_lacks(narrow_table: list[str]) -> None:
    assert narrow_table[-1] == "not shown at this width: utilisation of the roof"


def test_numbers_are_not_broken_at_their_commas_nor_values_before_their_unit() -> None:
    text = wrapped(Text("fits up to n_rows = 2,147,483, or 3.5 ms -3.3% to +2.9%"))

    lines = text.wrap(console(to_stderr=False), 14)

    assert [line.plain for line in lines] == [
        "fits up to",
        "n_rows =",
        "2,147,483, or",
        "3.5 ms",
        "-3.3% to +2.9%",
    ]
