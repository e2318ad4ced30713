"""Tables of data from a server, which may be newer than this version or malicious."""

from datetime import timedelta

import pytest

from roofwatch.ci.changepoint.detect import NoiseFloor
from roofwatch.cli.show import runs_table, series_table
from roofwatch.collector.record.machine import Outcome
from roofwatch.db.queries.results import RunSummary
from roofwatch.db.values import Series, SeriesPoint
from roofwatch.terminal import print_table
from tests.builders import NOON, PROJECT, make_commit_ref, make_series_key


def test_text_of_a_server_cannot_control_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    run = RunSummary(
        run_id="\x1b[2J",
        project=PROJECT,
        commit=make_commit_ref(),
        runner_class="[red]\x07",
        device_name="Example CPU",
        started_at=NOON,
        finished_at=NOON + timedelta(minutes=1),
        harness_version="1",
        is_dirty=True,
        outcome_counts={"ok\x1b": 2},
        is_pair_side=True,
        is_unreachable=True,
    )

    print_table(runs_table([run]))

    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "\x07" not in shown
    assert "[red]" in shown
    assert "(dirty work tree) (side of a pair) (commit no longer on its branch)" in " ".join(shown.split())


def test_an_unknown_metric_is_shown_as_a_number_and_failures_are_counted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    points = (
        SeriesPoint(make_commit_ref(0), "a", NOON, Outcome.OK, 1.25),
        SeriesPoint(make_commit_ref(1), "b", NOON, Outcome.CRASHED, None),
    )

    floors = [None, NoiseFloor(0.0123, 0.0567, 10)]
    both = [Series(make_series_key("of_tomorrow"), points), Series(make_series_key(), points[1:])]
    print_table(series_table(both, floors))

    rows = [line for line in capsys.readouterr().out.splitlines() if "rms_norm" in line]
    cells = [[cell.strip() for cell in row.strip("│").split("│")] for row in rows]
    assert [row[1] for row in cells] == ["of_tomorrow", "median_ns"]
    assert [row[3:] for row in cells] == [
        ["2", "1", "1.25", make_commit_ref(0).short_sha, "", ""],
        ["1", "1", "", "", "±1.2%", "5.7%"],
    ]
