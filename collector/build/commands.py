"""Run a command that builds or installs something, and keep what it printed."""

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_LAST_LINES = 20


@dataclass(frozen=True)
class FinishedCommand:
    exit_status: int
    output: str
    """Standard output and standard error together, in the order that they were written."""

    @property
    def last_lines(self) -> str:
        """What an error shows: the last lines name it, and all of them may be thousands."""
        lines = self.output.splitlines()[-_LAST_LINES:]
        return "\n".join(line for line in lines if line.strip())


def run_command(
    command: Sequence[str],
    folder: Path,
    environment: Mapping[str, str] | None = None,
) -> FinishedCommand:
    """Run a command in a folder, without input; in the environment of this process unless given."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment,
        # a program that asks a question ends instead of waiting for ever
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    return FinishedCommand(exit_status=done.returncode, output=done.stdout)
