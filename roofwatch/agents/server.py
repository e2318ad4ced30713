"""The MCP server: the commands of the command line as tools for agents, in one repository."""

import asyncio
import hmac
import inspect
import json
import os
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any

from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import CallToolResult, InputRequiredResult, ToolAnnotations
from pydantic import Field, ValidationError

from roofwatch import __version__
from roofwatch.agents.answers import JobReport, NextCall, to_answer
from roofwatch.agents.guide import BENCHMARK_FILE, INSTRUCTIONS, PROMPTS, next_call
from roofwatch.agents.jobs import Job, Jobs
from roofwatch.agents.tools import (
    OF_HISTORY,
    TOOLS,
    Tool,
    as_given,
    described,
    has_benchmark_files,
    in_words_of_tools,
    without_flags,
    words_of,
)
from roofwatch.collector.git import find_repository, project_of
from roofwatch.console.terminal import OutputError
from roofwatch.model.record import json_schema
from roofwatch.proposals.found_kernels import list_kernels_in_source

TOKEN_VARIABLE = "ROOFWATCH_MCP_TOKEN"  # noqa: S105  the variable's name
_PROGRESS_S = 0.5
"""Seconds between looks at the progress of a job that a call waits for."""
_CALL: ContextVar[Context[Any, Any] | None] = ContextVar("_CALL", default=None)
"""The call that is being answered; progress notifications go to its client."""
_FEWEST_TOKEN_CHARACTERS = 20
"""A shorter secret can be guessed; over HTTP anybody may try."""
WaitSeconds = Annotated[
    float, Field(ge=0, le=50, description="Seconds to wait for the end before answering.")
]
Detail = Annotated[bool, Field(description="Answer in full, however long.")]
Pointer = Annotated[
    str, Field(description="JSON pointer (RFC 6901) to a part of the result, such as /kernels/0.")
]


def serve(repository: Path, *, http: tuple[str, int] | None = None) -> None:
    """Serve until the client leaves (stdio) or the process is stopped (HTTP, with the token of
    `ROOFWATCH_MCP_TOKEN`).

    Commands run in the repository, and paths must lie below it.

    Raises:
        OutputError: the token is missing or short.
    """
    jobs = Jobs(repository.resolve())
    token = os.environ.get(TOKEN_VARIABLE, "")
    if http is None:
        make_server(jobs).run("stdio")
    elif len(token) < _FEWEST_TOKEN_CHARACTERS:
        raise OutputError(
            f"set {TOKEN_VARIABLE} to a secret of at least {_FEWEST_TOKEN_CHARACTERS} characters"
        )
    else:
        make_server(jobs, token=token).run("streamable-http", host=http[0], port=http[1])


def make_server(jobs: Jobs, *, token: str | None = None) -> MCPServer:
    """Make the server with all tools; HTTP requests must carry the token if there is one."""
    # the SDK asks for an issuer; without a resource URL it is published nowhere
    auth = AuthSettings.model_validate(
        {"issuer_url": "https://localhost", "resource_server_url": None}
    )
    server = _Server(
        "roofwatch",
        version=__version__,
        instructions=INSTRUCTIONS,
        log_level="WARNING",
        # over standard input there is nobody to authenticate
        auth=auth if token else None,
        token_verifier=_OneToken(token) if token else None,
    )
    annotations = ToolAnnotations(destructive_hint=False, open_world_hint=False)
    for name, tool in TOOLS.items():
        server.add_tool(
            _tool_function(jobs, name, tool),
            name=name,
            annotations=annotations,
            structured_output=False,
        )

    async def result(
        job: Annotated[str, Field(description="The job of an earlier answer.")],
        wait_s: WaitSeconds = 20,
        detail: Detail = False,
        pointer: Pointer = "",
        stop: Annotated[bool, Field(description="Stop the job.")] = False,
    ) -> str:
        """Get the result of a job, or a part of it."""
        started = jobs.find(job)
        if stop:
            await started.stop()
        return await _answer(started, wait_s, detail=detail, pointer=pointer)

    def report_problem(
        job: Annotated[str, Field(description="The job that went wrong.")],
        description: Annotated[
            str, Field(description="What you expected and what happened.", max_length=4_000)
        ],
    ) -> str:
        """Write a report about a problem of roofwatch into the repository's .roofwatch/problems
        folder.
        """
        return json.dumps({"written": str(jobs.report_problem(jobs.find(job), description))})

    for function in (result, report_problem):
        server.add_tool(function, annotations=annotations, structured_output=False)
    _add_guide(server, jobs.root)
    return server


class _Server(MCPServer):
    """Refuses unknown arguments, which the SDK ignores."""

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        # The SDK checks types, and drops what it does not know.
        for tool in await self.list_tools():
            properties = tool.input_schema["properties"]
            unknown = sorted(arguments.keys() - properties.keys())
            if tool.name == name and unknown:
                raise ToolError(
                    f"{name} has no {', '.join(unknown)}; it has {', '.join(properties)}"
                )
        _CALL.set(context)
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            if isinstance(error.__cause__, ValidationError):
                schemas = {tool.name: tool.input_schema for tool in await self.list_tools()}
                problems = _in_words(error.__cause__, schemas[name]["properties"])
                raise ToolError(f"{name}: {problems}") from None
            raise


def _in_words(error: ValidationError, properties: Mapping[str, Any]) -> str:
    """What is wrong with the arguments, without the SDK's addresses."""
    problems = []
    for problem in error.errors(include_url=False):
        parameter = ".".join(map(str, problem["loc"]))
        if problem["type"] == "missing":
            problems.append(f"{parameter} is missing: {properties[parameter]['description']}")
            continue
        problems.append(f"{parameter}: {problem['msg']}, not {problem['input']!r}"[:300])
    return "; ".join(problems)


def _add_guide(server: MCPServer, root: Path) -> None:
    """Add prompts for whole tasks, the forms of files, and the kernels of the repository."""

    @server.resource(
        "roofwatch://benchmark-file",
        name="benchmark file",
        description="A complete benchmark file to copy from.",
        mime_type="text/x-python",
    )
    def benchmark_file() -> str:
        return BENCHMARK_FILE

    @server.resource(
        "roofwatch://record-format",
        name="record format",
        description="JSON Schema of the record files that run and ab write.",
        mime_type="application/schema+json",
    )
    def record_format() -> str:
        return json.dumps(json_schema())

    @server.resource(
        "roofwatch://kernels",
        name="kernels",
        description="Kernels in the source of this repository, with their benchmark files.",
        mime_type="application/json",
    )
    def kernels() -> str:
        if find_repository(root) is None:
            raise OutputError(f"{root}: not in a git repository; run git init first")
        return json.dumps(list_kernels_in_source(root))

    for name, (title, text) in PROMPTS.items():
        server.prompt(name=name, title=title, description=title)(_prompt(text))


def _prompt(text: str) -> Callable[[str], str]:
    def prompt(
        subject: Annotated[str, Field(description="The program, revision or release.")],
    ) -> str:
        return text.format(subject=subject)

    return prompt


class _OneToken:
    def __init__(self, token: str) -> None:
        self._token = token

    async def verify_token(self, token: str) -> AccessToken | None:
        # The time of the comparison must not tell how much of a token is right.
        is_right = hmac.compare_digest(token.encode(), self._token.encode())
        if not is_right:
            return None
        return AccessToken(token=token, client_id="agent", scopes=[])


async def _answer(
    job: Job,
    wait_s: float,
    *,
    detail: bool,
    pointer: str,
) -> str:
    await _wait(job, wait_s)
    document = job.document
    # their sentences name options; those of other tools name whole commands
    if job.tool in {"profile", "submit"} and isinstance(document, dict):
        document = in_words_of_tools(document)
    following: NextCall | None = None
    if not job.task.done():
        why = "it has not ended yet"
        if job.state == "queued" and job.predecessor is not None:
            why = f"it waits for {job.predecessor.name} to end"
        following = NextCall("result", {"job": job.name}, why)
    elif job.exit_status is not None:
        following = next_call(
            tool=job.tool,
            arguments=job.arguments,
            document=document,
            exit_status=job.exit_status,
        )
    report = JobReport(
        job=job.name,
        tool=job.tool,
        state=job.state,
        exit_status=job.exit_status,
        document=document,
        errors=tuple(map(without_flags, job.errors)),
        progress=tuple(map(without_flags, job.progress)),
        next_call=following,
        load=job.load,
    )
    return to_answer(report, is_full=detail, pointer=pointer)


async def _wait(job: Job, wait_s: float) -> None:
    """Wait for a job, and notify the client of each line of progress."""
    call = _CALL.get()
    loop = asyncio.get_running_loop()
    deadline_s = loop.time() + wait_s
    reported = ""
    while True:
        left_s = max(0.0, deadline_s - loop.time())
        await asyncio.wait([job.task], timeout=min(_PROGRESS_S, left_s))
        newest = "".join(job.notes[-1:])
        if call is not None and newest != reported:
            await call.report_progress(job.line_count, message=newest)
            reported = newest
        if job.task.done() or not left_s:
            return


def _tool_function(jobs: Jobs, name: str, tool: Tool) -> Callable[..., Awaitable[str]]:
    """Make a function with the parameters of a command,
    which starts it and answers with its JSON.
    """
    parameters = inspect.signature(tool.function, eval_str=True).parameters
    chosen = [parameters[option] for option in tool.options.split()]

    async def call(
        *, wait_s: WaitSeconds = 20, detail: Detail = False, pointer: Pointer = "", **values: Any
    ) -> str:
        options: list[str] = []
        arguments: list[str] = []
        # a job on a runner needs the token, and leaves this machine idle
        is_measuring = tool.is_measuring and values.get("runner") is None
        if name == "list_kernels" and values["path"] is None and find_repository(jobs.root):
            # read, not imported: it need not wait for the job that measures
            options.append("--source")
            is_measuring = False
        elif values.get("path", "") is None and has_benchmark_files(jobs.root):
            # The kernels of this repository, rather than the bundled ones.
            values["path"] = "."
        elif name == "ab" and values["path"] is None:
            raise ToolError(
                "ab needs path, a benchmark file such as bench_softmax.py, and this repository has "
                "none: `propose` writes one"
            )
        if name in OF_HISTORY and values["project"] is None and find_repository(jobs.root):
            # not the only stored project, which may be another one
            values["project"] = project_of(jobs.root)
        for parameter in chosen:
            for is_option, word in words_of(parameter, values[parameter.name], jobs.root):
                if is_option:
                    options.append(word)
                else:
                    arguments.append(word)
        # What follows `--` is never taken for an option.
        command = [*tool.command.split(), *options, "--json", "--", *arguments]
        job = jobs.start(name, command, is_measuring=is_measuring, arguments=as_given(values))
        return await _answer(
            job,
            wait_s,
            detail=detail,
            pointer=pointer,
        )

    # The SDK makes the schema of a tool from the signature of its function.
    *own_parameters, _ = inspect.signature(call, eval_str=True).parameters.values()
    signature = inspect.Signature([*map(described, chosen), *own_parameters])
    call.__signature__ = signature  # type: ignore[attr-defined]
    call.__doc__ = tool.description or without_flags(inspect.getdoc(tool.function) or "")
    return call
