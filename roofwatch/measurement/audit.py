"""Compile each row of tables of tuned configurations for the device that the row names."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from roofwatch.ci.static.comparison import StaticChange, judge_static
from roofwatch.ci.tuning.pruning import judge_code
from roofwatch.collector.runs.case_run import CaseRun, select
from roofwatch.collector.runs.run_plan import OnProgress, RunPlan, Steps
from roofwatch.collector.runs.static_compiler import compilers, search_path
from roofwatch.collector.workers.fork_server import ForkServer
from roofwatch.configuration.arguments import suite_source
from roofwatch.measurement.table_rows import TableError, read_rows
from roofwatch.measurement.toolchains import find_toolchain
from roofwatch.model.results import StaticFacts
from roofwatch.model.tuning import AuditedRow, ConfiguredCode, Loss, TableRow, TriedConfiguration
from roofwatch.model.worker_protocol import CompileConfigurations

_Codes = Mapping[tuple[str, str], ConfiguredCode]
"""By target and configuration as text."""


@dataclass(frozen=True)
class Audit:
    rows: tuple[AuditedRow, ...]
    changes: tuple[StaticChange, ...]
    """Against another release of Triton; empty without one."""
    case_id: str
    """The case that the rows were compiled with."""


def audit_tables(
    suite: Path,
    tables: Sequence[Path],
    plan: RunPlan,
    on_progress: OnProgress,
    *,
    base_triton: str | None = None,
    extra_index_url: str | None = None,
) -> Audit:
    """Compile every row of the tables with the first case of the plan that can be compiled.

    A row whose device is not known is compiled for each target of the plan.

    Raises:
        TableError: a file is no table, or nothing of the suite can be compiled.
        SuiteError: the suite cannot be loaded, or nothing in it matches the plan.
        ToolchainError: the other release cannot be used.
    """
    rows = [row for table in tables for row in read_rows(table)]
    placed: list[tuple[TableRow, str]] = []
    for row in rows:
        if row.target is None:
            targets = plan.targets
        else:
            targets = (row.target,)
        placed += [(row, target) for target in targets]
    run, codes = _compile(suite, placed, plan, on_progress, packages=None)
    audited: list[AuditedRow] = []
    for row, target in placed:
        code = codes[target, str(row.configuration)]
        compiled = judge_code(code)
        # it was compiled with the launcher's defaults, which say nothing about the row
        if len(code.unknown) == len(code.configuration):
            compiled = TriedConfiguration(
                configuration=row.configuration,
                loss=Loss.UNKNOWN,
                detail="nothing in it is a parameter of the launcher",
            )
        audited.append(
            AuditedRow(row=row, target=target, compiled=compiled, stale=tuple(_stale(row, code)))
        )
    changes: tuple[StaticChange, ...] = ()
    if base_triton is not None:
        toolchain = find_toolchain(base_triton, extra_index_url=extra_index_url)
        _, base_codes = _compile(suite, placed, plan, on_progress, packages=toolchain.packages)
        judged = judge_static(_facts(placed, base_codes), _facts(placed, codes))
        changes = judged.changes
    return Audit(rows=tuple(audited), changes=changes, case_id=run.case.case_id)


def _compile(
    suite: Path,
    placed: Sequence[tuple[TableRow, str]],
    plan: RunPlan,
    on_progress: OnProgress,
    *,
    packages: Path | None,
) -> tuple[CaseRun, _Codes]:
    """Compile each configuration once for each target."""
    configurations: dict[str, dict[str, TableRow]] = {}
    for row, target in placed:
        configurations.setdefault(target, {}).setdefault(str(row.configuration), row)
    steps = Steps(on_progress)
    steps.total = len(configurations)
    codes: dict[tuple[str, str], ConfiguredCode] = {}
    with ExitStack() as stack:
        environment = {} if packages is None else {"PYTHONPATH": search_path(packages)}
        fork_server = stack.enter_context(ForkServer(environment))
        workers = stack.enter_context(compilers(fork_server, suite_source(suite)))
        run = _first_compiled(select(workers.start(), plan))
        for target, by_text in configurations.items():
            steps.say(f"compiling {len(by_text)} configurations for {target}")
            job = CompileConfigurations(
                **run.subject.named,
                target=target,
                configurations=tuple(row.configuration for row in by_text.values()),
            )
            reply = workers.request(job, timeout_s=plan.timeout_s * len(by_text))
            if reply.configured is None:
                reason = "no answer" if reply.failure is None else reply.failure.message
                raise TableError(f"{run.subject} on {target}: {reason}")
            for text, code in zip(by_text, reply.configured, strict=True):
                codes[target, text] = code
            steps.step()
    return run, codes


def _first_compiled(runs: Sequence[CaseRun]) -> CaseRun:
    for run in runs:
        if run.implementation.language != "torch" and not run.implementation.is_compiled:
            return run
    raise TableError("nothing to compile: name a Triton kernel with --kernel or --implementation")


def _stale(row: TableRow, code: ConfiguredCode) -> Iterator[str]:
    """Say why a row may not be tuned for what it is used with."""
    release = version("triton")
    tuned_with = row.triton_version
    # a patch release has the same compiler
    if tuned_with is not None and tuned_with.split(".")[:2] != release.split(".")[:2]:
        yield f"tuned with Triton {tuned_with}, and {release} runs"
    if code.unknown and not row.has_other_columns:
        yield f"the launcher has no parameter {', '.join(code.unknown)}"


def _facts(placed: Sequence[tuple[TableRow, str]], codes: _Codes) -> list[StaticFacts]:
    """The facts of all rows, each under the name of its row."""
    facts: list[StaticFacts] = []
    for row, target in placed:
        for fact in codes[target, str(row.configuration)].facts:
            name = f"{fact.function} of {row.label} in {row.file}"
            facts.append(fact.model_copy(update={"function": name}))
    return facts
