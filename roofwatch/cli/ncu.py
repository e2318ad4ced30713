"""The command that counts what the kernels of a case do, with NVIDIA Nsight Compute."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from roofwatch.options import AsJson, SuitePath

# commands import the rest themselves, so that `roofwatch --help` loads no torch, database or browser
app = typer.Typer()


@app.command()
def ncu(
    case: Annotated[
        str, typer.Argument(metavar="CASE", help="A case ID, or a pattern or kernel that matches one case.")
    ],
    path: SuitePath = None,
    *,
    implementation: Annotated[
        list[str] | None,
        typer.Option(
            "--implementation", "-i", help="Only these implementations; repeatable. Default: Triton and CUDA C++."
        ),
    ] = None,
    metrics: Annotated[
        str, typer.Option("--set", help="A set of sections such as basic or full, or metrics by name.")
    ] = "full",
    hot: Annotated[bool, typer.Option("--hot", help="Do not flush the caches.")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Keep the report: a .ncu-rep file, or its raw page as .csv.")
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option(help="Record file of the same commit and device to add the counters and the report of -o to."),
    ] = None,
    timeout_s: Annotated[float, typer.Option(min=1, help="Seconds for one implementation.")] = 900.0,
    as_json: AsJson = False,
) -> None:
    """Count what the kernels of a case do on a GPU: bytes, throughput, stalls, and the advice of Nsight Compute.

    Exit status 1 means that the case failed, 2 that it could not be counted here.
    """
    from roofwatch.arguments import suite_at, suite_source
    from roofwatch.collector.errors import SuiteError
    from roofwatch.collector.profiling.ncu_count import count_call, find_ncu
    from roofwatch.collector.record.measurement import CacheState
    from roofwatch.collector.record.record import RunRecord
    from roofwatch.collector.run import Progress
    from roofwatch.collector.workers.fork_server import ForkServer
    from roofwatch.collector.workers.protocol import WorkerSettings
    from roofwatch.collector.workers.worker import Worker
    from roofwatch.profiles.counting import exit_status, name_report, select_calls, tables, to_json, with_counters
    from roofwatch.terminal import print_error, print_json, print_note, print_table, progress

    executable, source = find_ncu(), suite_source(path)
    known = None if record is None else RunRecord.read(record)
    with progress(case) as on_progress:
        on_progress(Progress(0, 0, "loading the suite"))
        with ForkServer() as fork_server, Worker(fork_server, WorkerSettings(source=source)) as worker:
            chosen, names = select_calls(worker.start(), case, implementation)
        if output is not None and len(names) > 1:
            raise SuiteError(f"--output keeps one report, but {', '.join(names)} match; choose one with -i")
        calls = []
        for done, name in enumerate(names):
            on_progress(Progress(done, len(names), f"counting {name}"))
            calls.append(
                count_call(
                    source,
                    chosen.case_id,
                    name,
                    executable=executable,
                    metrics=metrics,
                    cache=CacheState.HOT if hot else CacheState.COLD,
                    timeout_s=timeout_s,
                    output=output,
                )
            )
    if record is not None and known is not None:
        counted = with_counters(known, suite_at(path, None).commit, calls, name=str(record))
        name_report(counted, record, output).write(record)
    if as_json:
        print_json(to_json(calls, record))
    else:
        for call in calls:
            device = f" on {call.device_name}" if call.device_name else ""
            print_note(f"{call.case_id} {call.implementation}{device}")
            for table in tables(call.counters):
                print_table(table)
        for kept in filter(None, (output, record)):
            print_note(f"written: {kept}")
    for call in calls:
        if call.failure is not None:
            print_error(f"{call.case_id} {call.implementation}: {call.failure.outcome}: {call.failure.message}")
    raise typer.Exit(exit_status(calls))
