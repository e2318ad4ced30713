"""The command that counts what one case's kernels do, with NVIDIA Nsight Compute."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from roofwatch.options import AsJson, SuitePath

# Everything else is imported by the command that needs it: `roofwatch --help` loads no torch, database or browser.
app = typer.Typer()


@app.command()
def ncu(
    case: Annotated[
        str,
        typer.Argument(
            metavar="CASE", help="A case's id, or a pattern or kernel that stands for one case.", show_default=False
        ),
    ],
    path: SuitePath = None,
    *,
    implementation: Annotated[
        list[str] | None,
        typer.Option(
            "--implementation",
            "-i",
            help="Only these implementations; may be given again. Left out: those in Triton and CUDA C++.",
            show_default=False,
        ),
    ] = None,
    metrics: Annotated[
        str,
        typer.Option("--set", help="Nsight Compute's set of sections, such as basic or full, or metrics by name."),
    ] = "full",
    hot: Annotated[bool, typer.Option("--hot", help="Leave the caches as they are; emptied if left out.")] = False,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Keep the report: a .ncu-rep file, or its raw page as .csv.", show_default=False
        ),
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option(
            help="Record file of the same commit and device to add the counters to; it will name the report of -o too.",
            show_default=False,
        ),
    ] = None,
    timeout_s: Annotated[float, typer.Option(min=1, help="Seconds for one implementation.")] = 900.0,
    as_json: AsJson = False,
) -> None:
    """Count what a case's kernels do on a GPU: bytes, throughput, stalls, and what Nsight Compute's rules advise.

    Exit status 1 means that the case failed, 2 that it could not be counted here.
    """
    from roofwatch.arguments import suite_at, suite_source
    from roofwatch.collector.errors import SuiteError
    from roofwatch.collector.profiling.ncu_command import CounterChoice
    from roofwatch.collector.profiling.ncu_count import CountingPlan, count_call, find_ncu
    from roofwatch.collector.record.measurement import CacheState
    from roofwatch.collector.record.record import RunRecord
    from roofwatch.collector.run import Progress
    from roofwatch.collector.workers.fork_server import ForkServer
    from roofwatch.collector.workers.worker import Worker
    from roofwatch.profiles.counting import exit_status, name_report, select_calls, tables, to_json, with_counters
    from roofwatch.terminal import print_error, print_json, print_note, print_table, progress

    executable = find_ncu()
    source = suite_source(path)
    known = None if record is None else RunRecord.read(record)
    plan = CountingPlan(choice=CounterChoice(metrics, CacheState.HOT if hot else CacheState.COLD), timeout_s=timeout_s)
    with progress(case) as on_progress:
        on_progress(Progress(0, 0, "loading the suite"))
        with ForkServer() as fork_server, Worker(fork_server, source) as worker:
            chosen, names = select_calls(worker.start(), case, implementation)
        if output is not None and len(names) > 1:
            raise SuiteError(f"--output keeps one report, and {', '.join(names)} match; choose one with -i")
        calls = []
        for done, name in enumerate(names):
            on_progress(Progress(done, len(names), f"counting {name}"))
            calls.append(count_call(source, chosen.case_id, name, plan, executable=executable, output=output))
    if record is not None and known is not None:
        counted = with_counters(known, suite_at(path, None).commit, calls, name=str(record))
        name_report(counted, record, output).write(record)
    if as_json:
        print_json(to_json(calls, record))
    else:
        for call in calls:
            print_note(
                f"{call.case_id} {call.implementation}" + (f" on {call.device_name}" if call.device_name else "")
            )
            for table in tables(call.counters) if call.failure is None else ():
                print_table(table)
        for kept in filter(None, (output, record)):
            print_note(f"written: {kept}")
    for call in calls:
        if call.failure is not None:
            print_error(f"{call.case_id} {call.implementation}: {call.failure.outcome}: {call.failure.message}")
    raise typer.Exit(exit_status(calls))
