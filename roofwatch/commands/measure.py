"""Commands that run a suite: list it, check it, measure it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from roofwatch.commands.judgement import print_judgement
from roofwatch.options import (
    EXIT_WRONG,
    AsJson,
    BaselineFile,
    ImplementationPattern,
    KernelPattern,
    Output,
    SuitePath,
    Tags,
    TargetList,
)

# Everything else is imported by the command that needs it: `roofwatch --help` loads no torch, database or browser.
app = typer.Typer()


@app.command("list")
def list_kernels(path: SuitePath = None, *, as_json: AsJson = False) -> None:
    """List the kernels of a suite with their cases and implementations."""
    from collector.nursery import Nursery
    from collector.worker import Worker
    from roofwatch import tables
    from roofwatch.arguments import suite_source
    from roofwatch.listing import summary
    from roofwatch.terminal import print_json, print_table

    with Nursery() as nursery, Worker(nursery, suite_source(path)) as worker:
        info = worker.start()
    if as_json:
        print_json({"kernels": [summary(kernel) for kernel in info.kernels]})
    else:
        print_table(tables.kernels(info.kernels))


@app.command()
def check(
    target: Annotated[
        str,
        typer.Argument(
            metavar="KERNEL|FILE",
            help="A kernel that comes with roofwatch (or a pattern such as 'matmul*'), or a benchmark file or folder.",
            show_default=False,
        ),
    ],
    *,
    case: Annotated[
        list[str] | None,
        typer.Option(
            "--case",
            "-c",
            help="Only cases whose id matches, edges too; may be given again. Left out: what takes moments.",
            show_default=False,
        ),
    ] = None,
    implementation: Annotated[
        list[str] | None,
        typer.Option(
            "--implementation",
            "-i",
            help="Only these implementations; may be given again. Left out: all but torch.compile's.",
            show_default=False,
        ),
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; a GPU where there is one if left out.")] = None,
    as_json: AsJson = False,
) -> None:
    """Check results and gradients at usual and odd sizes and in other memory layouts; explain what is wrong.

    Exit status 1 means that something is wrong or failed, 2 that nothing could be checked here.
    """
    from collector.check_run import CheckPlan, check_suite
    from collector.nursery import Nursery
    from roofwatch import tables
    from roofwatch.checking import check_target, exit_status, explanation, repeat_command, summary, to_json
    from roofwatch.terminal import print_json, print_note, print_table, progress

    asked = check_target(target)
    plan = CheckPlan(
        kernels=asked.kernels,
        cases=tuple(case) if case else None,
        implementations=tuple(implementation) if implementation else None,
        device=device,
    )
    with progress(target) as on_progress, Nursery() as nursery:
        reports = check_suite(asked.source, plan, on_progress, nursery=nursery)
    if as_json:
        print_json(to_json(asked, reports, device))
    else:
        print_table(tables.checks(reports))
        print_note(summary(reports))
        for report in reports:
            if report.has_failed:
                print_note("\n".join(["", *explanation(report), f"  repeat: {repeat_command(asked, report, device)}"]))
    raise typer.Exit(exit_status(reports))


@app.command()
def run(
    path: SuitePath = None,
    *,
    output: Output = None,
    kernel: KernelPattern = None,
    implementation: ImplementationPattern = None,
    tag: Tags = None,
    targets: TargetList = None,
    static: Annotated[bool, typer.Option(help="Compile for the targets too.")] = True,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; a GPU where there is one if left out.")] = None,
    threads: Annotated[int, typer.Option(min=1, help="Threads of torch on the CPU.")] = 1,
    blocks: Annotated[int, typer.Option(min=1, help="Blocks of samples per measurement.")] = 3,
    project: Annotated[str | None, typer.Option(help="Project name; the repository's folder if left out.")] = None,
    as_json: AsJson = False,
) -> None:
    """Check, compile and time a suite at the current commit, and write a record file.

    Exit status 1 means that the record is written and something in it failed: a wrong result, a crash, code that does
    not compile. What this machine cannot run has not failed.
    """
    from collector.nursery import Nursery
    from collector.run import collect_run
    from collector.whole_file import check_writable
    from roofwatch import tables
    from roofwatch.arguments import run_plan, suite_at
    from roofwatch.records import failed_results
    from roofwatch.terminal import print_error, print_json, print_note, print_table, progress

    plan = run_plan(
        kernels=kernel,
        implementations=implementation,
        tags=tag,
        targets=targets if static else "",
        device=device,
        threads=threads,
        blocks=blocks,
    )
    suite = suite_at(path, project)
    destination = output or Path("roofwatch-records")
    if not destination.suffix:
        destination /= f"{suite.commit.sha[:12]}-{suite.project.replace('/', '-')}.json"
    check_writable(destination)
    with progress(suite.project) as on_progress, Nursery() as nursery:
        record = collect_run(suite, plan, on_progress, nursery=nursery)
    record.write(destination)
    if as_json:
        print_json({"record": str(destination), **record.model_dump(mode="json")})
    else:
        print_table(tables.measurements(record))
        if record.static_facts:
            print_table(tables.static_facts(record.static_facts))
        print_note(f"record: {destination}   next: roofwatch ingest {destination}")
    failures = list(failed_results(record))
    for failure in failures:
        print_error(failure)
    if failures:
        raise typer.Exit(EXIT_WRONG)


@app.command()
def ab(
    path: Annotated[Path, typer.Argument(help="Benchmark file or folder, in a git repository.", show_default=False)],
    *,
    base: Annotated[str, typer.Option(help="Revision to compare against.")],
    head: Annotated[str | None, typer.Option(help="Revision that is new; the work tree as it is if left out.")] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the two records.")] = Path(
        "roofwatch-records"
    ),
    kernel: KernelPattern = None,
    implementation: ImplementationPattern = None,
    tag: Tags = None,
    targets: TargetList = None,
    static: Annotated[bool, typer.Option(help="Compile for the targets too.")] = True,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; a GPU where there is one if left out.")] = None,
    threads: Annotated[int, typer.Option(min=1, help="Threads of torch on the CPU.")] = 1,
    blocks: Annotated[int, typer.Option(min=1, help="Blocks of samples on each side; 3 at least for a verdict.")] = 8,
    baseline: BaselineFile = None,
    as_json: AsJson = False,
) -> None:
    """Measure two revisions against each other in one job, their blocks interleaved. Exit status as for compare."""
    import tempfile
    from contextlib import ExitStack

    from ci.gate import exit_code
    from ci.pull_request import judge_pull_request
    from collector.nursery import Nursery
    from collector.revision import suite_at_revision
    from collector.run import measure_pair
    from collector.whole_file import check_writable
    from roofwatch.arguments import run_plan, suite_at
    from roofwatch.static_gate import baseline_for_suite
    from roofwatch.terminal import print_json, print_note, progress

    plan = run_plan(
        kernels=kernel,
        implementations=implementation,
        tags=tag,
        targets=targets if static else "",
        device=device,
        threads=threads,
        blocks=blocks,
    )
    check_writable(output / "record.json")
    accepted = baseline_for_suite(path, baseline)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="roofwatch-ab-")))
        on_progress = stack.enter_context(progress("base against head"))
        suites = [
            suite_at(path, None)
            if revision is None
            else stack.enter_context(suite_at_revision(path, revision, folder / side))
            for side, revision in (("base", base), ("head", head))
        ]
        nursery = stack.enter_context(Nursery())
        records = measure_pair(suites[0], suites[1], plan, nursery=nursery, on_progress=on_progress)
    files = [
        output / f"{side}-{record.commit.sha[:12]}.json" for side, record in zip(("base", "head"), records, strict=True)
    ]
    for file, record in zip(files, records, strict=True):
        record.write(file)
    judged = judge_pull_request(*records, baseline=accepted)
    if as_json:
        print_json({"records": [str(file) for file in files], "judgement": judged, "exit_code": exit_code(judged)})
    else:
        print_judgement(judged)
        print_note(f"records: {files[0]} {files[1]}")
    raise typer.Exit(exit_code(judged))
