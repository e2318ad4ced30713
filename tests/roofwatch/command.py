"""Run the command line in another process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.preloaded.client import run_command

SUITES = Path(__file__).parent.parent / "suites"


@dataclass(frozen=True)
class Done:
    status: int
    output: str
    error: str

    @property
    def parsed(self) -> Any:
        return json.loads(self.output)


def roofwatch(*arguments: str | Path, cwd: Path | None = None, **environment: str) -> Done:
    """Run a command in a process forked from one that has loaded its packages, which saves most of
    the start.
    """
    return Done(*run_command([*map(str, arguments)], cwd, _variables(environment)))


def started_roofwatch(*arguments: str | Path, cwd: Path | None = None, **environment: str) -> Done:
    """Run a command in a new process, for tests that depend on its imports."""
    done = subprocess.run(
        [sys.executable, "-c", "from roofwatch.cli.main import main; main()", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env=_variables(environment),
    )
    return Done(done.returncode, done.stdout, done.stderr)


def _variables(more: dict[str, str]) -> dict[str, str]:
    return {**os.environ, "NO_COLOR": "1", **more}
