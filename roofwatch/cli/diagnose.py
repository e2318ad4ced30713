"""The command that says what limits a kernel."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from roofwatch.options import AsJson, Output, RunOptions, SuitePath, run_options

# commands import the rest themselves, so that `roofwatch --help` loads no torch, database or browser
app = typer.Typer()


@app.command()
@run_options(
    *("implementation", "targets", "device"),
    *("launch_timeout", "preparation_timeout", "check_timeout", "compile_timeout"),
)
def diagnose(
    case: Annotated[
        str, typer.Argument(metavar="CASE", help="A case ID, a pattern of IDs, or a kernel for its usual cases.")
    ],
    path: SuitePath = None,
    *,
    record: Annotated[
        Path | None, typer.Option("--record", help="Diagnose the results in this record file instead of measuring.")
    ] = None,
    options: RunOptions,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Name the limit of a kernel (memory, compute, latency, launches, the host), why, and what to try first.

    Exit status 1 means that the case fails, 2 that nothing is known about it.
    """
    from roofwatch.arguments import suite_at
    from roofwatch.collector.errors import CollectorError
    from roofwatch.collector.outbox.files import check_writable
    from roofwatch.collector.record.record import RunRecord
    from roofwatch.collector.run import collect_run
    from roofwatch.collector.workers.fork_server import ForkServer
    from roofwatch.measurement.run import write_records
    from roofwatch.profiles.diagnosing import diagnose_record, exit_status, plan_for, to_json, to_lines
    from roofwatch.terminal import print_json, print_note, progress

    if record is not None:
        if path is not None or output is not None:
            raise CollectorError("--record diagnoses existing results: it takes neither a suite nor --output")
        measured, name = RunRecord.read(record), str(record)
    else:
        if path is None and case.endswith(".py"):
            raise CollectorError(f"{case}: name a case or kernel first: roofwatch diagnose CASE {case}")
        if output is not None:
            check_writable(output)
        plan = options.plan()
        with progress(case) as on_progress, ForkServer() as fork_server:
            measured = collect_run(suite_at(path, None), plan_for(plan, case), on_progress, fork_server=fork_server)
        name = "this run" if output is None else str(output)
        if output is not None:
            write_records([(output, measured)])
    diagnosed = diagnose_record(measured, case, options.implementation, name=name)
    if as_json:
        print_json(to_json(diagnosed, name))
    else:
        for each in diagnosed:
            print_note("\n".join(to_lines(each)))
        if output is not None:
            print_note(f"record: {output}")
    raise typer.Exit(exit_status(diagnosed))
