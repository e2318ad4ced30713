"""Jobs of the MCP server: commands in processes of their own, their answers, and reports about
problems.
"""

import asyncio
import contextlib
import json
import os
import platform
import signal
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from mcp.server.mcpserver.exceptions import ToolError

from roofwatch.collector.redaction import Redaction
from roofwatch.console.terminal import PROGRESS_VARIABLE
from roofwatch.measurement.load import load_per_processor
from roofwatch.model.files import atomic_write

RESULT_FOLDER_PREFIX = "roofwatch-"
"""Of the folders that commands write by themselves: roofwatch-records and roofwatch-profiles."""
STATE_FOLDER = ".roofwatch"
_STOP_S = 10
_MAX_NOTES = 200
_MAX_LINE_BYTES = 2**22
_MAX_LINES = 20
_PROGRESS_LINES = 3
_ERROR_PREFIX = "roofwatch:"
_OWN_EXIT_STATUSES = (0, 1, 2)
_TIMING_TOOLS = ("run", "ab", "profile")
"""Tools whose times a busy machine makes uncertain."""
_PACKAGES = ("roofwatch", "torch", "triton", "mcp")


@dataclass(eq=False)
class Job:
    """One command in a process of its own."""

    name: str
    command: list[str]
    tool: str
    arguments: dict[str, Any]
    """Arguments of the tool."""
    task: asyncio.Task[None] = field(init=False)
    process: asyncio.subprocess.Process | None = None
    began_s: float = 0.0
    """By the monotonic clock."""
    exit_status: int | None = None
    """None until it has ended."""
    load: float = 0.0
    """Load per processor at its end, if it measured."""
    output: str = ""
    notes: list[str] = field(default_factory=list)
    """Last lines on standard error: progress, and errors."""
    line_count: int = 0
    """Lines on standard error so far."""
    predecessor: "Job | None" = None
    """The job that must end before this one may measure."""

    async def run(
        self, slots: asyncio.Semaphore, folder: Path, environment: dict[str, str]
    ) -> None:
        async with slots:
            self.began_s = time.monotonic()
            self.process = process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",
                "-m",
                "roofwatch",
                *self.command,
                cwd=folder,
                env=environment,
                stdin=DEVNULL,
                stdout=PIPE,
                stderr=PIPE,
                start_new_session=True,
                limit=_MAX_LINE_BYTES,
            )
            assert process.stdout is not None
            assert process.stderr is not None
            try:
                output, _ = await asyncio.gather(
                    process.stdout.read(), self._note_lines(process.stderr)
                )
                await process.wait()
            finally:  # the server may end first
                await self.stop()
        if self.tool in _TIMING_TOOLS and self.arguments.get("runner") is None:
            self.load = load_per_processor()
        self.exit_status = process.returncode
        self.output = output.decode(errors="replace")

    async def _note_lines(self, stream: asyncio.StreamReader) -> None:
        """Read standard error as it is written, so that a running job shows how far it is."""
        while chunk := await stream.readline():
            self.line_count += 1
            self.notes.append(chunk.decode(errors="replace").rstrip("\n"))
            del self.notes[:-_MAX_NOTES]

    @property
    def errors(self) -> list[str]:
        """The last lines that report an error; all, if the command ended in another way than its
        own.
        """
        if self.exit_status not in {None, *_OWN_EXIT_STATUSES}:
            return self.notes[-_MAX_LINES:]
        return [line for line in self.notes if line.startswith(_ERROR_PREFIX)][-_MAX_LINES:]

    @property
    def progress(self) -> list[str]:
        """The last lines that report no error, and how long it runs already."""
        lines = [line for line in self.notes if not line.startswith(_ERROR_PREFIX)]
        lines = lines[-_PROGRESS_LINES:]
        if self.state == "running":
            lines.append(f"running for {time.monotonic() - self.began_s:.0f} s")
        return lines

    @property
    def document(self) -> Any:
        """What the command printed as JSON; None if it was stopped or refused."""
        try:
            return json.loads(self.output)
        except ValueError:
            return None

    async def stop(self) -> None:
        """End the command and its processes; what was measured or recorded so far is kept."""
        if self.process is None:
            self.task.cancel()
            return
        # a terminal sends the first for Ctrl-C, to all of them too
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
            if self.process.returncode is None:
                os.killpg(self.process.pid, number)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.process.wait(), _STOP_S)

    @property
    def state(self) -> str:
        if self.task.done():
            return "stopped" if self.task.cancelled() else "finished"
        return "queued" if self.process is None else "running"


class Jobs:
    """Starts commands in a repository; those that measure run one at a time. They end with the
    event loop.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.by_name: dict[str, Job] = {}
        self._last_measuring: Job | None = None
        self._measuring, self._reading = asyncio.Semaphore(1), asyncio.Semaphore(4)

    def start(
        self,
        tool: str,
        command: list[str],
        *,
        is_measuring: bool,
        arguments: dict[str, Any],
    ) -> Job:
        """Start a command, or queue it behind the one that measures."""
        hidden = {"ROOFWATCH_MCP_TOKEN"}
        slots = self._reading
        predecessor: Job | None = None
        if is_measuring:
            predecessor = self._last_measuring
            # kernels of the repository run in it
            hidden.add("ROOFWATCH_TOKEN")
            slots = self._measuring
        environment = {key: value for key, value in os.environ.items() if key not in hidden}
        # `python` is this server's, whether or not its environment is activated
        environment["PATH"] = os.pathsep.join(
            [str(Path(sys.executable).parent), environment.get("PATH", os.defpath)]
        )
        environment[PROGRESS_VARIABLE] = "lines"
        job = Job(
            name=f"{tool}-{len(self.by_name) + 1}",
            command=command,
            tool=tool,
            arguments=arguments,
            predecessor=predecessor,
        )
        if is_measuring:
            self._last_measuring = job
        job.task = asyncio.create_task(job.run(slots, self.root, environment))
        self.by_name[job.name] = job
        return job

    def find(self, name: str) -> Job:
        """Return the job of that name.

        Raises:
            ToolError: there is none.
        """
        if name not in self.by_name:
            started = ", ".join(self.by_name) or "none yet"
            raise ToolError(
                f"no job {name}; the jobs since this server started are {started}. Jobs end with "
                f"their server; what they wrote is in {self._result_folders() or self.root}"
            )
        return self.by_name[name]

    def _result_folders(self) -> str:
        """The folders of records and profiles, those that exist."""
        folders = sorted(self.root.glob(f"{RESULT_FOLDER_PREFIX}*/"))
        return ", ".join(folder.name for folder in folders)

    def report_problem(self, job: Job, description: str) -> Path:
        """Write what happened, redacted, into a file of the repository's state folder.

        Raises:
            ToolError: that folder is a link to another place.
        """
        redaction = Redaction.of_this_machine(project=self.root)
        folder = self.root / STATE_FOLDER
        # the folder is in a repository that agents may write to
        if (folder / "problems").resolve() != folder / "problems":
            raise ToolError(f"{STATE_FOLDER}/problems leads out of the repository; remove the link")
        report = {
            "description": redaction.text(description),
            "command": redaction.arguments(["roofwatch", *job.command]),
            "state": job.state,
            "exit_status": job.exit_status,
            "errors": [redaction.text(line) for line in job.errors],
            "versions": {
                package.name: package.version
                for package in distributions()
                if package.name in _PACKAGES
            },
            "platform": platform.platform(),
            "python": platform.python_version(),
        }
        file = folder / "problems" / f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{job.name}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        # reports are for people, not for the next commit
        if not (folder / ".gitignore").exists():
            (folder / ".gitignore").write_text("*\n")
        atomic_write(file, json.dumps(report, indent=2).encode())
        return file.relative_to(self.root)
