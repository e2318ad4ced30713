"""What commands print of others."""

from __future__ import annotations

import pytest

from collector.run import Progress
from roofwatch.terminal import print_error, print_note, progress

HOSTILE = "\x1b]0;title\x07\x1b[2Jgone\u202e\r"


def check_is_harmless(shown: str) -> None:
    assert "gone" in shown
    assert all(character.isprintable() for line in shown.split("\n") for character in line)


def test_notes_keep_their_lines_and_nothing_in_them_drives_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    print_note(f"first {HOSTILE}\n\tsecond [red]{HOSTILE}")

    shown = capsys.readouterr().out
    check_is_harmless(shown)
    assert shown.count("\n") == 2
    assert "        second [red]" in shown


def test_errors_are_one_harmless_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_error(f"refused:\n{HOSTILE}")

    shown = capsys.readouterr().err
    check_is_harmless(shown)
    assert shown.startswith("roofwatch: refused: ")
    assert shown.count("\n") == 1


def test_what_stays_of_progress_drives_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("measuring") as show:
        show(Progress(0, 0, f"block 3: {HOSTILE}", is_to_stay=True))

    check_is_harmless(capsys.readouterr().err)
