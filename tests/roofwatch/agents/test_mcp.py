"""The MCP server, through the SDK's own client."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.server.mcpserver.exceptions import ToolError

from roofwatch.agents.answers import MAX_ANSWER_BYTES
from roofwatch.agents.jobs import Jobs
from roofwatch.agents.server import TOKEN_VARIABLE, make_server
from roofwatch.agents.tools import in_words_of_tools, without_flags
from roofwatch.model.errors import SuiteError
from roofwatch.proposals.found_kernels import find_function
from tests.docs.command_line import check_roofwatch
from tests.docs.markdown import ROOT, code_blocks
from tests.docs.test_tutorials import files_of
from tests.git_repository import commit_all, make_repository
from tests.roofwatch.command import SUITES, roofwatch

TOKEN = "a-token-for-this-test-only"
SUITE = "bench_good.py"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "kernels"
    folder.mkdir()
    (folder / SUITE).write_text((SUITES / SUITE).read_text())
    (folder / "waits.py").write_text("import time\nprint('waiting', flush=True)\ntime.sleep(600)\n")
    (folder / "outside").symlink_to(SUITES)
    (folder / "json.py").write_text("raise ImportError('the repository hides a module of Python')")
    return folder


@pytest.fixture
def jobs(repository: Path) -> Jobs:
    return Jobs(repository)


class Agent:
    """Calls tools of a connected server."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.longest_bytes = 0

    async def call(self, tool: str, **arguments: Any) -> Any:
        answer = await self.client.call_tool(tool, arguments)
        text = answer.content[0].text  # type: ignore[union-attr]
        assert not answer.is_error, text
        self.longest_bytes = max(self.longest_bytes, len(text.encode()))
        return json.loads(text)

    async def refused(self, tool: str, **arguments: Any) -> str:
        answer = await self.client.call_tool(tool, arguments)
        assert answer.is_error, answer
        return str(answer.content[0].text)  # type: ignore[union-attr]


def ask(server: Any, session: Callable[[Agent], Awaitable[None]]) -> None:
    async def connect() -> None:
        async with Client(server) as client:
            await session(Agent(client))

    asyncio.run(connect())


def over_stdio(repository: Path) -> StdioServerParameters:
    return StdioServerParameters(
        command=sys.executable,
        args=["-m", "roofwatch", "mcp", str(repository)],
        env=dict(os.environ),
    )


WRONG = """
from roofwatch import KernelSpec, cases

spec = KernelSpec(
    name="wrong",
    inputs=lambda case, make: {"x": make.normal(case["n"])},
    reference=lambda x: x + 1,
    cases=cases(shapes=[{"n": 64}]),
    flop_count=lambda case: case["n"],
    memory_bytes=lambda case: 8 * case["n"],
)


@spec.implementation("torch", name="mine")
def mine(x):
    return x + 2
"""


@pytest.fixture
def address(repository: Path) -> Iterator[str]:
    """A server of streamable HTTP."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        "roofwatch",
        "mcp",
        str(repository),
        "--http",
        "--port",
        str(port),
    ]
    process = subprocess.Popen(command, env={**os.environ, TOKEN_VARIABLE: TOKEN})
    try:
        for _ in range(600):
            with socket.socket() as tried:
                if tried.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert process.poll() is None
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def test_a_tool_answers_over_stdio_with_the_json_of_its_command(repository: Path) -> None:
    expected = roofwatch("list", SUITE, "--json", cwd=repository).parsed

    async def session(agent: Agent) -> None:
        answer = await agent.call("list_kernels", path=SUITE, detail=True, wait_s=50)
        assert answer["result"] == expected
        assert answer["exit_status"] == 0
        assert "not instructions" in answer["notice"]

    ask(over_stdio(repository), session)


async def finished(agent: Agent, tool: str, **arguments: Any) -> Any:
    """Call a tool and poll until its job ends."""
    answer = await agent.call(tool, **arguments)
    while answer["exit_status"] is None:
        answer = await agent.call(
            "result", job=answer["job"], wait_s=50, detail=arguments.get("detail", False)
        )
    return answer


@pytest.mark.slow
def test_an_agent_goes_from_a_slow_script_to_a_pull_request_comment(repository: Path) -> None:
    make_repository(repository)
    files = files_of("slow-training.md")
    for name, text in files.items():
        if "candidate" not in name:
            (repository / name).write_text(text)
    commit_all(repository)
    for name in files.keys() - {path.name for path in repository.iterdir()}:
        (repository / name).write_text(files[name])
    odd = "*n_cols=1000*/fwd"

    async def session(agent: Agent) -> None:
        profiled = await finished(
            agent, "profile", command=["python", "train.py"], warmup=2, steps=2
        )
        assert profiled["exit_status"] == 0, profiled
        diagnosed = await finished(
            agent,
            "diagnose",
            case="fake_quantise/*/bwd",
            path="bench_quantise.py",
            device="cpu",
            targets="",
        )
        (diagnosis,) = diagnosed["result"]["diagnoses"]
        assert max(finding["most_speedup"] for finding in diagnosis["findings"]) > 3
        wrong = await finished(
            agent, "check", target="bench_candidate.py", case=[odd], implementation=["triton"]
        )
        assert wrong["exit_status"] == 1
        assert "after the last whole tile" in json.dumps(wrong)
        candidate = repository / "candidate.py"
        candidate.write_text(
            candidate.read_text().replace("n_cols // BLOCK * BLOCK, BLOCK", "n_cols, BLOCK")
        )
        right = await finished(
            agent, "check", target="bench_candidate.py", case=[odd], implementation=["triton"]
        )
        assert right["exit_status"] == 0
        compiled = await finished(agent, "static", path="bench_candidate.py", detail=True)
        facts = compiled["result"]["static_facts"]
        assert {fact["target"] for fact in facts} == {
            "sm_80",
            "sm_90",
            "sm_100",
            "sm_120",
            "gfx942",
            "gfx950",
        }
        assert not any(fact["spilled_registers"] or fact["local_bytes"] for fact in facts)
        judged = await finished(
            agent, "submit", candidate="candidate.py", spec="bench_quantise.py", budget=120
        )
        assert judged["result"]["verdict"] == "unconfirmed", judged
        (repository / "bench_candidate.py").unlink()
        for name, text in files_of("slow-training.md", "to").items():
            (repository / name).write_text((repository / name).read_text() + text)
        commit_all(repository)
        pair = await finished(
            agent,
            "ab",
            path="bench_quantise.py",
            base="HEAD~1",
            blocks=2,
            budget=0,
            targets="sm_90",
            detail=True,
        )
        base, head = pair["result"]["records"]
        compared = await finished(agent, "compare", base=base, head=head, detail=True)
        assert compared["result"]["judgement"] == pair["result"]["judgement"]
        comment = roofwatch("report", base, head, cwd=repository).output
        assert "fake_quantise" in comment
        assert "`triton`" in comment

    ask(over_stdio(repository), session)


def test_http_needs_the_token(address: str) -> None:
    async def connect() -> None:
        for authorization in ({}, {"Authorization": "Bearer another-token-of-some-length"}):
            async with httpx2.AsyncClient(headers=authorization) as stranger:
                assert (await stranger.post(address, json={})).status_code == 401
        known = httpx2.AsyncClient(headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60)
        async with Client(streamable_http_client(address, http_client=known)) as client:
            answer = await Agent(client).call("list_kernels", path=SUITE, wait_s=50)
            assert answer["exit_status"] == 0

    asyncio.run(connect())


def test_http_with_a_short_token_is_refused(repository: Path) -> None:
    done = roofwatch("mcp", repository, "--http", ROOFWATCH_MCP_TOKEN="short")

    assert done.status == 2
    assert TOKEN_VARIABLE in done.error


def test_the_documented_configuration_of_clients_is_valid() -> None:
    stdio, http = (
        json.loads(block)["mcpServers"]["roofwatch"]
        for block in code_blocks(ROOT / "docs" / "how-to" / "agents.md", "json")
    )

    command, repository = stdio["args"]
    check_roofwatch([command, str(ROOT)])
    assert Path(repository).is_absolute()
    assert TOKEN_VARIABLE in http["headers"]["Authorization"]


def test_every_tool_describes_its_parameters(jobs: Jobs) -> None:
    async def session(agent: Agent) -> None:
        tools = {tool.name: tool for tool in (await agent.client.list_tools()).tools}
        expected = (
            "list_kernels check static run ab submit diagnose profile compare history "
            "regressions report_problem result ingest propose"
        )
        assert tools.keys() >= {*expected.split()}
        for tool in tools.values():
            parameters = tool.input_schema["properties"]
            assert all(one.get("description") for one in parameters.values()), tool.name

    ask(make_server(jobs), session)


def test_no_tool_deletes_or_writes_where_asked(jobs: Jobs) -> None:
    async def session(agent: Agent) -> None:
        for tool in (await agent.client.list_tools()).tools:
            parameters = tool.input_schema["properties"]
            assert not parameters.keys() & {"output", "html", "url", "accept", "keep", "ray"}
            assert tool.annotations is not None
            assert tool.annotations.destructive_hint is False

    ask(make_server(jobs), session)


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("list_kernels", {"path": "../other"}),
        ("list_kernels", {"path": "/etc"}),
        ("check", {"target": "outside/bench_good.py"}),
        ("check", {"target": "--device"}),
        ("diagnose", {"case": "softmax", "record": "/etc/passwd"}),
        ("static", {"path": SUITE, "base": "--upload-pack=x"}),
        ("compare", {"base": "../a.json", "head": "b.json"}),
        ("profile", {"command": ["python", "-c", "print(1)"]}),
        ("profile", {"command": ["rm", "-r", "."]}),
        ("profile", {"command": ["python", "outside/launches_some.py"]}),
        ("list_kernels", {"pth": SUITE}),
        ("result", {"job": "run-7"}),
    ],
)
def test_what_leaves_the_repository_or_is_unknown_is_refused(
    jobs: Jobs, tool: str, arguments: dict[str, Any]
) -> None:
    async def session(agent: Agent) -> None:
        await agent.refused(tool, **arguments)

    ask(make_server(jobs), session)
    assert jobs.by_name == {}


def test_long_work_is_a_job_to_ask_for(jobs: Jobs) -> None:
    async def session(agent: Agent) -> None:
        first = await agent.call("profile", command=["python", "waits.py"], wait_s=0)
        assert first["exit_status"] is None
        assert first["next"]["arguments"] == {"job": first["job"]}
        part = await agent.call("result", job=first["job"], wait_s=0, pointer="/summary")
        assert part["job"] == first["job"], "a job that runs has no parts yet"
        assert first["state"] in {"queued", "running"}

    ask(make_server(jobs), session)


def test_a_job_can_be_stopped(jobs: Jobs) -> None:
    async def session(agent: Agent) -> None:
        job = await agent.call("profile", command=["python", "waits.py"], wait_s=0)
        while job["state"] == "queued":
            job = await agent.call("result", job=job["job"], wait_s=0.05)
        stopped = await agent.call("result", job=job["job"], stop=True, wait_s=50)
        assert stopped["state"] == "finished"
        assert stopped["exit_status"] != 0

    ask(make_server(jobs), session)


TRAINED_THEN_WAITING = """
import signal
import torch
layer = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
for _ in range(30):
    layer(torch.ones(4, 8)).sum().backward()
    optimizer.step()
print("trained", flush=True)
signal.pause()
"""


@pytest.mark.slow
def test_a_profile_that_is_stopped_keeps_its_steps(jobs: Jobs, repository: Path) -> None:
    (repository / "train.py").write_text(TRAINED_THEN_WAITING)

    async def session(agent: Agent) -> None:
        job = await agent.call("profile", command=["python", "train.py"], wait_s=0)
        while not any("trained" in line for line in job.get("progress", [])):
            job = await agent.call("result", job=job["job"], wait_s=0.2)
        stopped = await agent.call("result", job=job["job"], stop=True, wait_s=50)
        assert stopped["state"] == "finished"
        folder = repository / stopped["result"]["folder"]
        assert (folder / "trace.json.gz").is_file()
        assert stopped["result"]["traces"][0]["step_count"] > 0

    ask(make_server(jobs), session)


def test_one_job_measures_at_a_time(jobs: Jobs) -> None:
    async def session(agent: Agent) -> None:
        first = await agent.call("profile", command=["python", "waits.py"], wait_s=0)
        second = await agent.call("list_kernels", path=SUITE, wait_s=0)
        assert second["state"] == "queued"
        assert first["job"] in second["next"]["why"]
        await agent.call("result", job=first["job"], stop=True, wait_s=50)
        finished = await agent.call("result", job=second["job"], wait_s=50)
        assert finished["exit_status"] == 0

    ask(make_server(jobs), session)


def test_files_of_a_job_of_an_earlier_server_are_named(jobs: Jobs) -> None:
    (jobs.root / "roofwatch-profiles").mkdir()

    with pytest.raises(ToolError, match="roofwatch-profiles"):
        jobs.find("profile-1")


def test_jobs_end_with_the_server(jobs: Jobs) -> None:
    async def session(agent: Agent) -> None:
        answer = await agent.call("profile", command=["python", "waits.py"], wait_s=0)
        while answer["state"] == "queued":
            answer = await agent.call("result", job=answer["job"], wait_s=0.05)

    ask(make_server(jobs), session)

    (job,) = jobs.by_name.values()
    assert job.process is not None
    assert job.process.returncode


def test_a_long_answer_is_cut_to_names(jobs: Jobs) -> None:
    for file in jobs.root.glob("bench_*.py"):
        file.unlink()

    async def session(agent: Agent) -> None:
        cut = await finished(agent, "list_kernels")
        assert "attention" in json.dumps(cut), "names stay in a short answer"
        assert cut["is_cut"]
        assert agent.longest_bytes <= MAX_ANSWER_BYTES

    ask(make_server(jobs), session)


def test_a_pointer_reads_a_part_of_an_answer(jobs: Jobs) -> None:
    for file in jobs.root.glob("bench_*.py"):
        file.unlink()

    async def session(agent: Agent) -> None:
        cut = await finished(agent, "list_kernels")
        part = await agent.call("result", job=cut["job"], pointer="/kernels/1/name")
        whole = await agent.call("result", job=cut["job"], detail=True)
        assert part["result"] == whole["result"]["kernels"][1]["name"]
        assert "there is no 99999" in await agent.refused(
            "result", job=cut["job"], pointer="/kernels/99999"
        )

    ask(make_server(jobs), session)


def test_an_agent_is_led_from_a_wrong_result_to_the_right_one(jobs: Jobs) -> None:
    (jobs.root / "bench_wrong.py").write_text(WRONG)

    async def session(agent: Agent) -> None:
        kernels = await finished(agent, "list_kernels", path="bench_wrong.py")
        assert kernels["next"]["tool"] == "check"
        wrong = await finished(agent, "check", **kernels["next"]["arguments"])
        assert "wrong/n=64/float32/fwd mine: incorrect" in json.dumps(wrong)[:500]
        assert wrong["next"]["arguments"]["case"] == ["wrong/n=64/float32/fwd"]
        (jobs.root / "bench_wrong.py").write_text(WRONG.replace("x + 2", "x + 1"))
        right = await finished(agent, "check", **wrong["next"]["arguments"])
        assert right["exit_status"] == 0
        assert right["next"]["arguments"] == {"target": "bench_wrong.py"}
        all_cases = await finished(agent, "check", **right["next"]["arguments"])
        assert all_cases["next"] == {
            "tool": "run",
            "arguments": {"path": "bench_wrong.py"},
            "why": "how fast is it, and how far from the limit?",
        }
        assert agent.longest_bytes <= MAX_ANSWER_BYTES

    ask(make_server(jobs), session)


def test_wrong_arguments_are_told_in_words(jobs: Jobs) -> None:
    async def session(agent: Agent) -> None:
        text = await agent.refused("check", target="bench_good.py", case="one")
        assert "case" in text
        assert "not 'one'" in text
        assert "http" not in text

    ask(make_server(jobs), session)


def test_an_agent_reads_how_a_benchmark_file_looks(jobs: Jobs) -> None:
    async def session(agent: Agent) -> None:
        resources = {str(one.uri) for one in (await agent.client.list_resources()).resources}
        assert resources == {
            "roofwatch://benchmark-file",
            "roofwatch://record-format",
            "roofwatch://kernels",
        }
        contents = (await agent.client.read_resource("roofwatch://benchmark-file")).contents
        text = contents[0].text  # type: ignore[union-attr]
        assert "KernelSpec(" in text
        compile(text, "bench_example.py", "exec")

    ask(make_server(jobs), session)


def test_an_agent_gets_tasks_as_prompts(jobs: Jobs) -> None:
    async def session(agent: Agent) -> None:
        names = {prompt.name for prompt in (await agent.client.list_prompts()).prompts}
        assert names == {
            "solve_slow_program",
            "find_the_limit",
            "check_a_kernel",
            "review_pull_request",
            "compare_releases",
        }
        prompt = await agent.client.get_prompt("solve_slow_program", {"subject": "train.py"})
        assert "train.py" in str(prompt.messages[0].content)

    ask(make_server(jobs), session)


def test_kernels_are_read_from_the_source_while_a_program_is_measured(jobs: Jobs) -> None:
    make_repository(jobs.root)

    async def session(agent: Agent) -> None:
        await agent.call("profile", command=["python", "waits.py"], wait_s=0)
        answer = await agent.call("list_kernels", wait_s=50)
        assert answer["exit_status"] == 0
        assert answer["result"]["kernels"][0]["benchmark"] == SUITE
        assert answer["next"]["arguments"] == {"target": SUITE}
        (content,) = (await agent.client.read_resource("roofwatch://kernels")).contents
        assert json.loads(content.text) == answer["result"]["kernels"]  # type: ignore[union-attr]

    ask(make_server(jobs), session)


def test_a_client_is_notified_of_progress(jobs: Jobs) -> None:
    messages: list[str | None] = []

    async def note(progress: float, total: float | None, message: str | None) -> None:
        assert progress > 0
        assert total is None
        messages.append(message)

    async def session(agent: Agent) -> None:
        (jobs.root / "says.py").write_text("import sys\nprint('half done', file=sys.stderr)\n")
        arguments = {"command": ["says.py"], "wait_s": 50}
        await agent.client.call_tool("profile", arguments, progress_callback=note)

    ask(make_server(jobs), session)

    assert "half done" in messages


def test_a_refused_method_leads_to_the_resource_with_a_benchmark_file(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("class Slow:\n    def forward(self): ...\n")

    with pytest.raises(SuiteError) as refused:
        find_function(tmp_path, "model.py::Slow.forward")

    assert "a method" in str(refused.value)
    assert "roofwatch://benchmark-file" in without_flags(str(refused.value))
    assert without_flags("ends after --for") == "ends after seconds"


def test_tools_speak_of_their_arguments_not_of_flags(jobs: Jobs) -> None:
    async def session(agent: Agent) -> None:
        for tool in (await agent.client.list_tools()).tools:
            words = json.dumps([tool.description, tool.input_schema])
            assert "--" not in words, tool.name
            assert "repeatable" not in words, tool.name
        refused = await agent.call("check", target="bench_good.py", like="x", wait_s=50)
        assert "--" not in refused["errors"][-1]

    ask(make_server(jobs), session)


def test_a_missing_argument_is_described_with_an_example(jobs: Jobs) -> None:
    async def session(agent: Agent) -> None:
        (jobs.root / SUITE).unlink()
        for tool, example in (("ab", "bench_softmax.py"), ("check", "ops.py::softmax")):
            message = await agent.refused(tool)
            assert example in message
            assert "Field required" not in message
        assert "spec is missing: Benchmark file" in await agent.refused("submit", candidate="a.py")

    ask(make_server(jobs), session)


def test_the_reason_of_a_submission_names_arguments() -> None:
    submitted = {"reason": "the budget ended; raise --budget"}

    assert in_words_of_tools(submitted) == {"reason": "the budget ended; raise budget"}


def test_the_summary_of_a_submission_leaves_out_its_command() -> None:
    repeat = "  repeat: roofwatch submit a.py --spec b.py"
    submitted = {"summary": f"inconclusive: raise --budget\n{repeat}"}

    assert in_words_of_tools(submitted) == {"summary": "inconclusive: raise budget"}


def test_a_program_does_not_see_the_tokens(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROOFWATCH_TOKEN", "token-of-the-server")
    monkeypatch.setenv(TOKEN_VARIABLE, TOKEN)
    (jobs.root / "tells.py").write_text(
        "import os\nprint([name for name in os.environ if 'ROOFWATCH' in name])\n"
    )

    async def session(agent: Agent) -> None:
        answer = await agent.call("profile", command=["python", "tells.py"], wait_s=50)
        told = " ".join(answer["errors"] + answer["progress"])
        assert "[" in told
        assert "ROOFWATCH_TOKEN" not in told
        assert TOKEN_VARIABLE not in told

    ask(make_server(jobs), session)


def test_a_tool_with_a_runner_measures_in_the_queue_of_the_server_and_not_here(jobs: Jobs) -> None:
    async def session(agent: Agent) -> None:
        waiting = await agent.call("profile", command=["python", "waits.py"], wait_s=0)
        # it does not wait for the job that measures here
        answer = await agent.call("run", path=SUITE, runner="h100", wait_s=50)
        assert answer["exit_status"] == 2, answer
        assert "no server" in str(answer["errors"]), answer["progress"]
        await agent.call("result", job=waiting["job"], stop=True, wait_s=50)

    ask(make_server(jobs), session)


def test_a_report_about_a_problem_is_written_into_the_repository_without_secrets(
    jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "hunter2-hunter2")

    async def session(agent: Agent) -> None:
        failed = await agent.call("check", target="gone.py", wait_s=50)
        assert failed["exit_status"] == 2
        written = await agent.call(
            "report_problem", job=failed["job"], description="fails with hunter2-hunter2"
        )
        assert (jobs.root / ".roofwatch" / ".gitignore").read_text() == "*\n"
        report = json.loads((jobs.root / written["written"]).read_text())
        assert "hunter2" not in json.dumps(report)
        assert report["command"][:2] == ["roofwatch", "check"]
        assert "gone.py" in report["errors"][-1]
        assert report["versions"]["roofwatch"]
        shutil.rmtree(jobs.root / ".roofwatch")
        (jobs.root / ".roofwatch").symlink_to(jobs.root.parent)
        assert "out of the repository" in await agent.refused(
            "report_problem", job=failed["job"], description="x"
        )

    ask(make_server(jobs), session)
