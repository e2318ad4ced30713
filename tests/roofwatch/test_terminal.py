"""Untrusted text in the output of commands."""

from __future__ import annotations

import json

import pytest

from roofwatch.collector.record.machine import Outcome
from roofwatch.collector.run_plan import Progress
from roofwatch.tables import measurements
from roofwatch.terminal import print_error, print_json, print_note, print_table, progress
from tests.builders import make_measurement, make_record

HOSTILE = "\x1b]0;title\x07\x1b[2Jgone\u202e\r"


def check_is_harmless(shown: str) -> None:
    assert "gone" in shown
    assert all(character.isprintable() for line in shown.split("\n") for character in line)


def test_notes_keep_lines_and_lose_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    print_note(f"first {HOSTILE}\n\tsecond [red]{HOSTILE}")

    shown = capsys.readouterr().out
    check_is_harmless(shown)
    assert shown.count("\n") == 2
    assert "        second [red]" in shown


def test_names_like_emoji_codes_are_unchanged(capsys: pytest.CaptureFixture[str]) -> None:
    print_note("kernel norm:fire:fwd in /scratch/:+1:/x")

    assert capsys.readouterr().out == "kernel norm:fire:fwd in /scratch/:+1:/x\n"


def test_json_escapes_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    said = {"name": f"{HOSTILE}\x9b31m\x7f\u2028\U000e0041 é ☃"}
    print_json(said)

    shown = capsys.readouterr().out
    check_is_harmless(shown)
    assert "é ☃" in shown
    assert json.loads(shown) == said


def test_messages_of_failed_kernels_keep_lines_and_lose_control_characters(
    capsys: pytest.CaptureFixture[str],
) -> None:
    failed = make_measurement(outcome=Outcome.CRASHED, message=f"first [/b]{HOSTILE}\nsecond {HOSTILE}")

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
