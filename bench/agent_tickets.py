"""Solve tickets as an agent that knows nothing but what the MCP server answers.

    python -m bench.agent_tickets [TICKET ...]

The client takes its first tool from a prompt of the server and each later call from `next` of the
last answer. A ticket is solved when the answers name the planted fault. Prints calls, bytes and
seconds of each ticket; exit status 1 if one is not solved within its limits.
"""

import asyncio
import json
import os
import re
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from mcp import Client
from mcp.client.stdio import StdioServerParameters

from roofwatch.collector.git import run_git
from roofwatch.model.files import JsonObject

TICKETS_FOLDER = Path(__file__).parent / "tickets"
MOST_CALLS = 12
MOST_BYTES = 40_000
_FIRST_TOOL = re.compile(r"`(\w+)`")
_WAIT_S = 50
"""Seconds that one call waits for its job."""


@dataclass(frozen=True)
class Ticket:
    """A planted fault, and the words that an answer must hold to name it."""

    file: str
    prompt: str
    arguments: JsonObject
    """Of the first call."""
    expected: tuple[str, ...]
    change: tuple[str, str] | None = None
    """What the version to judge replaces in the committed file."""


TICKETS = {
    "slow_quantiser": Ticket(
        file="slow_quantiser.py",
        prompt="solve_slow_program",
        arguments={"command": ["slow_quantiser.py"]},
        expected=("NineLevels", "slow_quantiser.py:10"),
    ),
    "host_sync": Ticket(
        file="host_sync.py",
        prompt="solve_slow_program",
        arguments={"command": ["host_sync.py"]},
        expected=("host_sync.py:13",),
    ),
    "slow_data": Ticket(
        file="slow_data.py",
        prompt="solve_slow_program",
        arguments={"command": ["slow_data.py"]},
        expected=("slow_data.py:11", "read_batch"),
    ),
    "missing_fusion": Ticket(
        file="bench_missing_fusion.py",
        prompt="find_the_limit",
        arguments={"case": "gated", "path": "bench_missing_fusion.py"},
        expected=("could be one kernel", "sigmoid"),
    ),
    "wrong_tail": Ticket(
        file="bench_wrong_tail.py",
        prompt="check_a_kernel",
        arguments={"target": "bench_wrong_tail.py"},
        expected=("n_cols=100", "incorrect"),
    ),
    "overflow": Ticket(
        file="bench_overflow.py",
        prompt="check_a_kernel",
        arguments={"target": "bench_overflow.py"},
        expected=("n_rows=600000", "_double_kernel"),
    ),
    "extra_copy": Ticket(
        file="bench_extra_copy.py",
        prompt="review_pull_request",
        arguments={"path": "bench_extra_copy.py", "base": "HEAD", "targets": "sm_90"},
        expected=("clone",),
        change=("x.contiguous()  # VERSION", "x.contiguous().clone()"),
    ),
    "spilling_tile": Ticket(
        file="bench_spilling_tile.py",
        prompt="review_pull_request",
        arguments={"path": "bench_spilling_tile.py", "base": "HEAD", "targets": "sm_90"},
        expected=("spill",),
        change=("N_WARPS = 8", "N_WARPS = 1"),
    ),
}


@dataclass
class Attempt:
    """What an agent read on the way to an answer."""

    calls: list[str] = field(default_factory=list)
    byte_count: int = 0
    text: str = ""
    seconds: float = 0.0

    def solves(self, ticket: Ticket) -> bool:
        return all(words in self.text for words in ticket.expected)

    def is_within_limits(self) -> bool:
        return len(self.calls) <= MOST_CALLS and self.byte_count <= MOST_BYTES


async def attempt(ticket: Ticket, folder: Path) -> Attempt:
    """Follow the server's answers until the ticket is solved, or nothing comes next."""
    attempt = Attempt()
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "roofwatch", "mcp", str(folder)],
        env=dict(os.environ),
    )
    started_s = time.monotonic()
    async with Client(server) as client:
        prompt = await client.get_prompt(ticket.prompt, {"subject": ticket.file})
        prompt_text = prompt.messages[0].content.text  # type: ignore[union-attr]
        first_tool = _FIRST_TOOL.search(prompt_text.replace(f"`{ticket.file}`", ""))
        assert first_tool is not None, f"the prompt {ticket.prompt} names no tool"
        tool = first_tool[1]
        arguments = ticket.arguments
        while len(attempt.calls) < MOST_CALLS:
            answer = await _call(client, attempt, tool, arguments)
            while answer.get("exit_status") is None and len(attempt.calls) < MOST_CALLS:
                answer = await _call(client, attempt, "result", {"job": answer["job"]})
            next_call = answer.get("next")
            if attempt.solves(ticket) or next_call is None or next_call["tool"] is None:
                break
            # the same call again waits for a change of the code, which this client cannot make
            if (next_call["tool"], next_call["arguments"]) == (tool, arguments):
                break
            tool = next_call["tool"]
            arguments = next_call["arguments"]
    attempt.seconds = time.monotonic() - started_s
    return attempt


async def _call(client: Client, attempt: Attempt, tool: str, arguments: JsonObject) -> JsonObject:
    """Call a tool, and count what the agent would have to read."""
    result = await client.call_tool(tool, {**arguments, "wait_s": _WAIT_S})
    text = result.content[0].text  # type: ignore[union-attr]
    attempt.calls.append(tool)
    attempt.byte_count += len(text.encode())
    attempt.text += text
    if result.is_error:
        return {"exit_status": 1}
    answer: JsonObject = json.loads(text)
    return answer


def prepare(ticket: Ticket, folder: Path) -> None:
    """Make a repository with the file, and with the change to judge in its work tree."""
    file = folder / ticket.file
    shutil.copy(TICKETS_FOLDER / ticket.file, file)
    run_git(folder, "init", "--quiet")
    run_git(folder, "add", ".")
    author = ("-c", "user.name=agent", "-c", "user.email=agent@localhost")
    run_git(folder, *author, "commit", "--quiet", "--message", "Add a kernel")
    if ticket.change is not None:
        committed, changed = ticket.change
        file.write_text(file.read_text().replace(committed, changed))


def main(names: list[str]) -> int:
    failures = 0
    for name in names or list(TICKETS):
        ticket = TICKETS[name]
        with tempfile.TemporaryDirectory() as folder:
            prepare(ticket, Path(folder))
            result = asyncio.run(attempt(ticket, Path(folder)))
        is_good = result.solves(ticket) and result.is_within_limits()
        failures += not is_good
        state = "solved" if is_good else "NOT SOLVED"
        print(
            f"{name:16} {state:10} {len(result.calls):2} calls {result.byte_count:6} B "
            f"{result.seconds:5.0f} s  {', '.join(result.calls)}",
            flush=True,
        )
    # a count of 256 failures would be status 0
    return min(failures, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
