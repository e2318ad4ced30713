"""Tickets that a client solves with nothing but the answers of the MCP server."""

import subprocess
import sys

import pytest

from tests.docs.markdown import ROOT


@pytest.mark.slow
@pytest.mark.parametrize("ticket", ["slow_data", "wrong_tail"])
def test_a_ticket_is_solved_within_its_limits(ticket: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench.agent_tickets", ticket],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stdout + done.stderr
