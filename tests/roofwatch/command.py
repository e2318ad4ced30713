"""The command line as a user runs it: another process."""

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
    """The command line in a process that is forked from one which has loaded its packages, in a fraction of the time
    that a start takes; its fork servers are forked too, and not its children.
    """
    return Done(*run_command([*map(str, arguments)], cwd, _variables(environment)))


def started_roofwatch(*arguments: str | Path, cwd: Path | None = None, **environment: str) -> Done:
    """The same in a process that is started anew, and loads everything itself: for what hangs on that."""
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
