"""Commands that list, check and measure a suite."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from roofwatch.commands.options import (
    AsJson,
    Like,
    Output,
    ProjectName,
    ReferenceFunction,
    Resume,
    RunOptions,
    SuitePath,
    shared_options,
)
from roofwatch.commands.queueable import queueable
from roofwatch.console.terminal import (
    EXIT_CANNOT,
    EXIT_WRONG,
    is_debugging,
    print_error,
    print_result,
    progress,
    write_text,
)

if TYPE_CHECKING:
    from rich.table import Table

app = typer.Typer()


@app.command()
def init(
    repository: Annotated[
        Path, typer.Argument(help="Git repository.", exists=True, file_okay=False)
    ] = Path(),
    *,
    agents: Annotated[
        bool, typer.Option("--agents", help="Only AGENTS.md, instructions for AI agents.")
    ] = False,
    capture: Annotated[
        Path | None,
        typer.Option(
            metavar="TEST.py",
            help="Run this test or program and record its launches in bench_captured.py.",
        ),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="OWNER/NAME@SHA",
            help="The roofwatch that the jobs use. Default: where this one was installed from.",
        ),
    ] = None,
    plain: Annotated[
        bool, typer.Option("--plain", help="Write jobs with no actions but GitHub's own.")
    ] = False,
    benchmark: Annotated[
        bool, typer.Option("--benchmark", help="Only the benchmark file.")
    ] = False,
    function: Annotated[
        str | None,
        typer.Option(
            metavar="FILE.py::NAME",
            help="Propose this function or autograd.Function, such as my_ops.py::gelu. Default: "
            "all that launch a Triton kernel.",
        ),
    ] = None,
    history: Annotated[
        bool,
        typer.Option("--history", help="Also a nightly job that keeps a site on a branch."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Write without asking.")] = False,
    as_json: AsJson = False,
) -> None:
    """Find the Triton kernels of a repository and propose a benchmark file, settings and CI jobs
    for them.

    Existing files are never changed. Exit status of a captured test or program: its own.
    """
    from roofwatch.proposals.found_kernels import FoundKernel
    from roofwatch.proposals.install_source import install_source, parse_source
    from roofwatch.proposals.proposing import (
        propose,
        propose_instructions,
        to_lines,
        tried,
    )
    from roofwatch.static.static_gate import capture_launches

    kernels: list[FoundKernel] = []
    if agents:
        files = propose_instructions(repository)
    else:
        if source is None:
            chosen = install_source()
        else:
            chosen = parse_source(source)
        kernels, files = propose(
            repository,
            chosen,
            is_plain=plain,
            with_history=history,
            function=function,
            only_benchmark=benchmark,
            try_out=tried,
        )
    status = 0
    states: dict[str, str] = {}
    # each file by itself: a person may want only some of them
    for path, text in files.items():
        states[str(path)] = "declined"
        if path.exists():
            states[str(path)] = "exists"
        elif yes or _confirm(path):
            states[str(path)] = "written"
            write_text(path, text)
    if capture is not None:
        # pytest collects tests; a program has a main part of its own
        if capture.name.startswith("test_"):
            program = ["-m", "pytest", "-q"]
        else:
            program = []
        status = capture_launches([*program, str(capture)], repository / "bench_captured.py")
        if status:
            print_error(f"{capture}: ended with status {status}; launches may be missing")
    lines = to_lines(kernels, states, only_benchmark=benchmark)
    print_result({"kernels": kernels, "files": states}, *lines, as_json=as_json)
    raise typer.Exit(status)


def _confirm(path: Path) -> bool:
    try:
        return typer.confirm(f"Write {path}?", err=True)
    except typer.Abort:  # no terminal
        return False


@app.command("list")
def list_kernels(
    path: SuitePath = None,
    *,
    source: Annotated[
        bool,
        typer.Option(
            "--source", help="Read the source of this repository instead, without importing it."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List the kernels of a suite with their implementations and cases."""
    from roofwatch.tables import kernels as kernel_tables

    if source:
        from roofwatch.configuration.arguments import repository_of
        from roofwatch.proposals.found_kernels import list_kernels_in_source

        listed = list_kernels_in_source(repository_of(path or Path()))
        print_result({"kernels": listed}, *kernel_tables.source_lines(listed), as_json=as_json)
        return
    from roofwatch.collector.workers.fork_server import ForkServer
    from roofwatch.collector.workers.worker import Worker
    from roofwatch.configuration.arguments import suite_source
    from roofwatch.model.worker_protocol import WorkerSettings

    with (
        ForkServer() as fork_server,
        Worker(fork_server, WorkerSettings(source=suite_source(path))) as worker,
    ):
        info = worker.start()
    summaries = [kernel_tables.kernel_summary(kernel) for kernel in info.kernels]
    print_result({"kernels": summaries}, kernel_tables.kernels(info.kernels), as_json=as_json)


@app.command()
@queueable
@shared_options("implementation", "device", "timeout")
def check(
    target: Annotated[
        str,
        typer.Argument(
            metavar="KERNEL|FILE|FILE.py::FUNCTION",
            help="Bundled kernel or a pattern, benchmark file, folder, or ops.py::softmax.",
        ),
    ],
    *,
    case: Annotated[
        list[str] | None,
        typer.Option(
            "--case",
            "-c",
            help="Only cases whose id matches, edge cases included; repeatable. Default: the "
            "quick ones.",
        ),
    ] = None,
    depth: Annotated[
        Literal["quick", "full"],
        typer.Option(
            help="full tries layouts, values and proofs for every case, torch.compile too."
        ),
    ] = "quick",
    sanitize: Annotated[
        bool, typer.Option("--sanitize", help="Run under compute-sanitizer, on a GPU.")
    ] = False,
    like: Like = None,
    reference: ReferenceFunction = None,
    options: RunOptions,
    as_json: AsJson = False,
) -> None:
    """Check results, gradients and accesses to memory, at odd sizes, in other layouts and with
    other values. Prove that 32-bit offsets fit, and count what a call costs, without a GPU.

    Exit status 1: something is wrong or failed. 2: nothing could be checked here.
    """
    from roofwatch.collector.workers.fork_server import ForkServer
    from roofwatch.measurement.sanitize import run_sanitized
    from roofwatch.proposals.function_benchmark import benchmark_of

    if sanitize:
        sanitized = run_sanitized([word for word in sys.argv[1:] if word != "--sanitize"])
        for text in sanitized.messages:
            print_error(text)
        raise typer.Exit(sanitized.exit_status)
    named = target
    target = benchmark_of(named, like, reference)
    with ForkServer() as fork_server:
        fork_server.start()
        # they load torch while this process loads the rest
        from roofwatch.measurement.check import Depth, check_suite, check_target
        from roofwatch.measurement.explain_check import (
            exit_status,
            explain_failures,
            explain_overflows,
            has_no_reference,
            name_packages,
            to_json,
        )
        from roofwatch.measurement.proofs import proofs_of
        from roofwatch.tables import check as check_tables
        from roofwatch.tables.headlines import headline_of_check

        source, kernels = check_target(target)
        plan = replace(options.plan(), kernels=kernels, cases=tuple(case) if case else None)
        with progress(target) as on_progress:
            suite = check_suite(
                source,
                plan,
                on_progress,
                fork_server=fork_server,
                depth=Depth(depth),
            )
    reports = suite.reports
    # a file with a wrong reference would stand in the way of the next one
    if target != named and has_no_reference(reports):
        Path(target).unlink()
        print_error(f"removed {target}: its reference failed; repeat with another one")
    headline = headline_of_check(target, suite, options.device)
    claims = [
        *(claim.text for claim in proofs_of(suite)),
        *name_packages(suite.packages),
    ]
    failures = [
        *explain_overflows(suite.overflow_proofs),
        *explain_failures(target, reports, options.device, with_traceback=is_debugging()),
    ]
    print_result(
        to_json(target, suite, options.device),
        headline,
        *failures,
        check_tables.checks(reports),
        *claims,
        as_json=as_json,
    )
    raise typer.Exit(exit_status(suite))


@app.command()
@queueable
@shared_options()
def run(
    path: SuitePath = None,
    *,
    rev: Annotated[
        str | None, typer.Option("--rev", help="Revision to measure. Default: the work tree.")
    ] = None,
    output: Output = None,
    options: RunOptions,
    project: ProjectName = None,
    ray: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS",
            help="Use all GPUs of this Ray cluster: auto, local (this machine), host:port or "
            "ray://host:port.",
        ),
    ] = None,
    affected: Annotated[
        bool,
        typer.Option("--affected", help="Only kernels that the change since --base can affect."),
    ] = False,
    base: Annotated[str | None, typer.Option(help="Base revision of --affected.")] = None,
    pin_autotune: Annotated[
        Path | None,
        typer.Option(
            metavar="RECORD",
            help="Use what the autotuner chose in this record.",
        ),
    ] = None,
    like: Like = None,
    reference: ReferenceFunction = None,
    resume: Resume = False,
    as_json: AsJson = False,
) -> None:
    """Check, compile and time a suite at the current or another commit, and write a record file.

    An interrupted run keeps its results; continue it with --resume.

    Exit status 1: the record is written and something in it failed. 2: nothing could be timed.
    """
    from roofwatch.collector.workers.fork_server import ForkServer
    from roofwatch.model.errors import GitError
    from roofwatch.proposals.function_benchmark import benchmark_of

    if path is not None:
        path = Path(benchmark_of(str(path), like, reference))
    if affected != (base is not None):
        raise GitError(
            "use --affected and --base together: only kernels changed since that revision are "
            "measured"
        )
    if ray is not None and pin_autotune is not None:
        raise typer.BadParameter("not on a cluster", param_hint="--pin-autotune")
    fork_server = ForkServer()
    if ray is None:
        fork_server.start()
    # it loads torch while this process loads the rest
    from roofwatch.measurement.revisions import only_affected, suite_of
    from roofwatch.measurement.run import measure_suite
    from roofwatch.reporting.records import (
        RECORD_SUFFIX,
        choices_of_record,
        failed_results,
        nothing_done,
    )
    from roofwatch.tables import run as run_tables
    from roofwatch.tables.headlines import headline_of_run

    plan = options.plan()
    pinned = None if pin_autotune is None else choices_of_record(pin_autotune)
    skipped: tuple[str, ...] = ()
    if base is not None:
        restricted = only_affected(
            path=path,
            base=base,
            head=rev,
            plan=plan,
            patterns=options.kernel,
        )
        if restricted is None:
            return
        plan, skipped = restricted
    destination = output or Path("roofwatch-records")
    with fork_server, suite_of(path, rev, project) as suite:
        if not destination.suffix:
            name = f"{suite.commit.sha[:12]}-{suite.project.replace('/', '-')}"
            destination /= f"{name}{RECORD_SUFFIX}"
        written = measure_suite(
            suite,
            plan,
            destination,
            fork_server=fork_server,
            address=ray,
            skipped=skipped,
            is_resumed=resume,
            pinned=pinned,
        )
    documents: list[dict[str, object]] = []
    report: list[Table | str] = []
    for file, record in written:
        report.append(headline_of_run(record, path))
        if as_json:
            report.extend(run_tables.fastest_lines(record))
        report.extend(run_tables.of_run(file, record))
        if as_json:
            documents.append({"record": str(file), **record.model_dump(mode="json")})
    print_result(
        {"records": documents} if ray else next(iter(documents), None), *report, as_json=as_json
    )
    for _, record in written:
        record.require_own_code()
    failures = [failure for _, record in written for failure in failed_results(record)]
    for failure in failures:
        print_error(failure)
    if failures:
        raise typer.Exit(EXIT_WRONG)
    if (why := nothing_done([record for _, record in written])) is not None:
        print_error(why)
        raise typer.Exit(EXIT_CANNOT)
