"""Commands that profile programs and kernels, read and redact profiles, and name the limit of a
kernel.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from roofwatch.commands.options import AsJson, Keep, Output, RunOptions, SuitePath, shared_options
from roofwatch.commands.queueable import queueable
from roofwatch.console.terminal import (
    console,
    print_error,
    print_json,
    print_result,
    progress,
    write_text,
)
from roofwatch.model.optional import map_optional

if TYPE_CHECKING:
    from roofwatch.collector.profiling.captured import RecordingState

app = typer.Typer()


@app.command()
@queueable
@shared_options("implementation", "targets", "device", "timeout")
def diagnose(
    case: Annotated[
        str,
        typer.Argument(
            metavar="CASE", help="A case ID, a pattern of IDs, or a kernel for its usual cases."
        ),
    ],
    path: SuitePath = None,
    *,
    record: Annotated[
        Path | None,
        typer.Option(
            "--record", help="Diagnose the results in this record file instead of measuring."
        ),
    ] = None,
    options: RunOptions,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Name the limit of a kernel (memory, compute, latency, launches, the host), why, and what to
    try first.

    Exit status 1 means that the case fails, 2 that nothing is known about it.
    """
    from roofwatch.collector.workers.fork_server import ForkServer
    from roofwatch.model.errors import CollectorError
    from roofwatch.model.files import check_writable

    if record is None and path is None and case.endswith(".py"):
        raise CollectorError(f"{case}: name a case or kernel first: roofwatch diagnose CASE {case}")
    if record is not None and (path is not None or output is not None):
        raise CollectorError(
            "--record diagnoses existing results: it takes neither a suite nor --output"
        )
    if output is not None:
        check_writable(output)
    with ForkServer() as fork_server:
        if record is None:
            fork_server.start()
        # it loads torch while this process loads the rest
        from roofwatch.collector.runs.measure import measure
        from roofwatch.configuration.arguments import suite_at
        from roofwatch.model.record import RunRecord
        from roofwatch.profiles.diagnosing import (
            diagnose_record,
            exit_status,
            plan_for,
            to_json,
            to_lines,
        )

        if record is None:
            plan = plan_for(options.plan(), case)
            with progress(case) as on_progress:
                (measured,) = measure(
                    [suite_at(path, None)], plan, on_progress, fork_server=fork_server
                )
            name = "this run"
        else:
            measured = RunRecord.read(record)
            name = str(record)
    if output is not None:
        measured.write(output)
        name = str(output)
    diagnosed = diagnose_record(measured, case, options.implementation, name=name)
    lines = ["\n".join(to_lines(diagnosed))]
    if output is not None:
        lines.append(f"record: {output}")
    print_result(to_json(diagnosed, name), *lines, as_json=as_json)
    raise typer.Exit(exit_status(diagnosed))


@app.command()
@queueable
def ncu(
    case: Annotated[
        str,
        typer.Argument(
            metavar="CASE", help="A case ID, or a pattern or kernel that matches one case."
        ),
    ],
    path: SuitePath = None,
    *,
    implementation: Annotated[
        list[str] | None,
        typer.Option(
            "--implementation",
            "-i",
            help="Only these implementations; repeatable. Default: Triton and CUDA C++.",
        ),
    ] = None,
    metrics: Annotated[
        str,
        typer.Option("--set", help="A set of sections such as basic or full, or metrics by name."),
    ] = "full",
    hot: Annotated[bool, typer.Option("--hot", help="Do not flush the caches.")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Keep the report: a .ncu-rep file.")
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option(help="Record file of the same commit and device to add the counters to."),
    ] = None,
    timeout_s: Annotated[
        float, typer.Option(min=1, help="Seconds for one implementation.")
    ] = 900.0,
    as_json: AsJson = False,
) -> None:
    """Count what the kernels of a case do on a GPU: bytes, throughput, stalls, and the advice of
    Nsight Compute.

    Exit status 1 means that the case failed, 2 that it could not be counted here.
    """
    from roofwatch.collector.profiling.ncu_count import count_call, find_ncu
    from roofwatch.collector.runs.run_plan import Progress
    from roofwatch.collector.workers.fork_server import ForkServer
    from roofwatch.collector.workers.worker import Worker
    from roofwatch.configuration.arguments import suite_at, suite_source
    from roofwatch.model.errors import SuiteError
    from roofwatch.model.measurement import CacheState
    from roofwatch.model.record import RunRecord
    from roofwatch.model.worker_protocol import WorkerSettings
    from roofwatch.profiles.reading import describe, exit_status, select_calls, with_counters

    executable = find_ncu()
    source = suite_source(path)
    stored_record = map_optional(RunRecord.read, record)
    with progress(case) as on_progress:
        on_progress(Progress(0, 0, "loading the suite"))
        with (
            ForkServer() as fork_server,
            Worker(fork_server, WorkerSettings(source=source)) as worker,
        ):
            chosen, names = select_calls(worker.start(), case, implementation)
        # one file cannot hold the reports of several
        if output is not None and len(names) > 1:
            raise SuiteError(
                f"--output keeps one report, but {', '.join(names)} match; choose one with -i"
            )
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
    # written back, so that the report and the dashboard show the counters
    if record is not None and stored_record is not None:
        with_counters(stored_record, suite_at(path, None).commit, calls, name=str(record)).write(
            record
        )
    written = [
        f"written: {written_path}" for written_path in (output, record) if written_path is not None
    ]
    document = {"exit_status": exit_status(calls), "record": record and str(record), "calls": calls}
    print_result(document, *describe(calls), *written, as_json=as_json)
    for call in calls:
        if call.message is not None:
            print_error(f"{call.case_id} {call.implementation}: {call.outcome}: {call.message}")
    raise typer.Exit(exit_status(calls))


@app.command(context_settings={"allow_interspersed_args": False})
@queueable
def profile(
    command: Annotated[
        list[str],
        typer.Argument(help="After --, the command as in a shell: python train.py, torchrun ..."),
    ],
    *,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Folder for the traces; default: in roofwatch-profiles/."
        ),
    ] = None,
    after: Annotated[
        float, typer.Option(help="Start recording so many seconds after torch is imported.", min=0)
    ] = 0,
    seconds: Annotated[
        float, typer.Option("--for", help="Seconds to record; 0: to the end.", min=0)
    ] = 20,
    warmup: Annotated[
        int | None,
        typer.Option(
            help="Start after so many optimizer steps. Default: found automatically.", min=0
        ),
    ] = None,
    steps: Annotated[
        int | None, typer.Option(help="Stop after so many optimizer steps.", min=1)
    ] = None,
    max_seconds: Annotated[
        float | None,
        typer.Option(
            help="End the program after so many seconds, once its trace is written.", min=1
        ),
    ] = None,
    end: Annotated[
        bool, typer.Option("--end", help="End the program once its steps are recorded.")
    ] = False,
    top: Annotated[
        int, typer.Option(min=0, metavar="N", help="Show N rows of each table. 0: all.")
    ] = 15,
    shapes: Annotated[
        bool, typer.Option("--shapes", help="Record the input shapes of operators.")
    ] = False,
    stacks: Annotated[
        bool, typer.Option("--stacks", help="Record Python functions; slows the program.")
    ] = False,
    keep: Keep = None,
    as_json: AsJson = False,
) -> None:
    """Run any PyTorch program unchanged and show where its time goes;
    its exit status is passed on.
    """
    from roofwatch.collector.profiling.profile_program import RecordingWindow, profile_program
    from roofwatch.collector.redaction import Redaction, parse_kinds
    from roofwatch.measurement.load import load_per_processor
    from roofwatch.profiles.report import folder_for, report_of
    from roofwatch.profiles.report_tables import print_report
    from roofwatch.profiles.stored_profiles import find_earlier, store_profile

    redaction = Redaction.of_this_machine(kept_kinds=map_optional(parse_kinds, keep))
    folder = output or folder_for(command)
    # a window that the user gives is taken as it is
    is_automatic = warmup is None and not after and steps is None and not stacks
    capture = profile_program(
        command,
        folder,
        window=RecordingWindow(
            after_s=after,
            for_s=seconds or None,
            warmup_steps=None if is_automatic else warmup or 0,
            steps=steps,
            with_shapes=shapes,
            with_stacks=stacks,
        ),
        redaction=redaction,
        max_seconds=max_seconds,
        is_ended_when_recorded=end,
        on_state=_say_what_is_awaited,
        stdout_to_stderr=as_json,
    )
    report = report_of(capture, folder)
    shown_command = redaction.arguments(command)
    earlier = find_earlier(folder, shown_command)
    store_profile(report, shown_command, load=load_per_processor())
    if as_json:
        print_json({**vars(report), "earlier": map_optional(str, earlier)})
    else:
        print_report(report, top=top or None)
    raise typer.Exit(0 if capture.was_ended else capture.exit_status)


def _say_what_is_awaited(state: "RecordingState") -> None:
    """Tell a person at the terminal, and an agent as progress, why nothing happens."""
    from roofwatch.collector.profiling.captured import RecordingState

    sentences = {
        RecordingState.PAUSED: "No step was seen in the time to record (--for); recording goes on "
        "with the first one. Ctrl-C ends the program and keeps what was recorded.",
        RecordingState.COMPLETE: "The recording is complete; waiting for the program to end. "
        "Ctrl-C ends it and keeps the profile; with --end it is ended at this point.",
    }
    if state in sentences:
        console().print(f"profile: {sentences[state]}", soft_wrap=True)


@app.command()
def read(
    file: Annotated[Path, typer.Argument(help="Profiler file; its format is detected.")],
    *,
    top: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="N",
            help="Show N kernels: the slowest of a trace, the first of a report. 0: all.",
        ),
    ] = 10,
    as_json: AsJson = False,
) -> None:
    """Show a profiler's file: a torch.profiler trace, or a report of Nsight Compute or Nsight
    Systems.
    """
    from roofwatch.collector.profiling.profile_file import read_profile
    from roofwatch.profiles.reading import tables

    profiler_file = read_profile(file, top=top or None)
    print_result(profiler_file, *tables(profiler_file, top=top or None), as_json=as_json)


@app.command()
def diff(
    base: Annotated[
        Path,
        typer.Argument(
            help="Folder of roofwatch profile, trace of torch.profiler, or record with profiles "
            "(run --profile)."
        ),
    ],
    head: Annotated[Path, typer.Argument(help="Another of the same kind.")],
    *,
    html: Annotated[
        Path | None, typer.Option(help="Also write one HTML page with a figure, to share.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Explain why one step took longer than another: by kernel, gaps and overlap of two traces or
    records.
    """
    from roofwatch.profiles.ledgers import read_ledgers, to_html, to_json, to_tables
    from roofwatch.profiles.stored_profiles import compare_profiles, trace_of

    if base.is_dir() and head.is_dir():
        pair = compare_profiles(base, head)
        ledgers = read_ledgers(trace_of(base), trace_of(head))
        document: Any = {**pair.to_json(), "ledgers": to_json(ledgers)}
        last_lines = [pair.summary()]
    else:
        ledgers = read_ledgers(base, head)
        document = to_json(ledgers)
        last_lines = []
    if html is not None:
        write_text(html, to_html(ledgers, base, head))
    tables = [table for ledger in ledgers for table in to_tables(ledger)]
    print_result(document, *tables, *last_lines, as_json=as_json)


@app.command()
def redact(
    file: Annotated[
        Path,
        typer.Argument(
            help="A record, a trace, a CSV of Nsight Compute, or an export of Nsight Systems."
        ),
    ],
    *,
    output: Output = None,
    keep: Keep = None,
    as_json: AsJson = False,
) -> None:
    """Copy a file without names of hosts and people, paths, secrets and the environment, to share
    it.
    """
    from roofwatch.collector.outbox.artefact_folder import redact_file
    from roofwatch.collector.redaction import Redaction, RedactionError, parse_kinds

    if output is None:
        raise RedactionError(f"{file}: name the copy with -o")
    # an original that was overwritten is lost
    if output.resolve() == file.resolve():
        raise RedactionError(
            f"{file}: the copy must not replace the original; give another name with -o"
        )
    redacted = redact_file(
        file, output, Redaction.of_this_machine(kept_kinds=parse_kinds(keep or ()))
    )
    if redacted.removed:
        emptied = f"; emptied: {', '.join(redacted.removed)}"
    else:
        emptied = ""
    line = (
        f"written: {output} ({redacted.format}; {redacted.texts_changed} text(s) changed{emptied})"
    )
    print_result(redacted, line, as_json=as_json)
