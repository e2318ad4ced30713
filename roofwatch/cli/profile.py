"""Commands that profile any program, and that redact a profile."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from roofwatch.options import AsJson, Keep, Output

# commands import the rest themselves, so that `roofwatch --help` loads no torch, database or browser
app = typer.Typer()


@app.command(context_settings={"allow_interspersed_args": False})
def profile(
    command: Annotated[
        list[str], typer.Argument(help="After --, the command as in a shell: python train.py, torchrun ...")
    ],
    *,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder for the traces; default: in roofwatch-profiles/.")
    ] = None,
    after: Annotated[float, typer.Option(help="Start recording so many seconds after torch is imported.", min=0)] = 0,
    seconds: Annotated[float, typer.Option("--for", help="Seconds to record; 0: to the end.", min=0)] = 20,
    warmup: Annotated[int, typer.Option(help="Start after so many optimizer steps.", min=0)] = 0,
    steps: Annotated[int | None, typer.Option(help="Stop after so many optimizer steps.", min=1)] = None,
    max_seconds: Annotated[
        float | None, typer.Option(help="End the program after so many seconds, once its trace is written.", min=1)
    ] = None,
    shapes: Annotated[bool, typer.Option("--shapes", help="Record the input shapes of operators.")] = False,
    stacks: Annotated[bool, typer.Option("--stacks", help="Record Python functions; slows the program.")] = False,
    html: Annotated[Path | None, typer.Option(help="Also write a figure; needs the server extra.")] = None,
    record: Annotated[
        Path | None, typer.Option(help="Record file of the run that the traces belong to: it will name them.")
    ] = None,
    keep: Keep = None,
    as_json: AsJson = False,
) -> None:
    """Run any PyTorch program unchanged and show where its time goes; its exit status is passed on."""
    from roofwatch.collector.profiling.profile_program import Window, profile_program
    from roofwatch.collector.record.record import RunRecord
    from roofwatch.collector.redaction import Redaction, parse_kept
    from roofwatch.profiles.report import folder_for, report_of
    from roofwatch.profiles.tables import print_report
    from roofwatch.store.artefacts import name_artefacts
    from roofwatch.terminal import console, print_json, write_text

    if html is not None:
        import roofwatch.profiles.figure  # noqa: F401  a missing extra is reported before the program runs
    known = None if record is None else RunRecord.read(record)
    folder = output or folder_for(command)
    capture = profile_program(
        command,
        folder,
        window=Window(
            after_s=after,
            for_s=seconds or None,
            warmup_steps=warmup,
            steps=steps,
            with_shapes=shapes,
            with_stacks=stacks,
        ),
        redaction=Redaction.of_this_machine(kept=None if keep is None else parse_kept(keep)),
        max_seconds=max_seconds,
        stdout_to_stderr=as_json,
    )
    report = report_of(capture, folder)
    files = [folder / trace.trace for trace in report.traces]
    if html is not None:
        from roofwatch.profiles.figure import to_html

        write_text(html, to_html(report))
        files.append(html)
    if record is not None and known is not None:
        # the files are already redacted
        name_artefacts(known, record, files, redaction=None).write(record)
    if as_json:
        print_json(report)
    else:
        print_report(report)
        if record is not None:
            console(to_stderr=True).print(f"Named in {record}", markup=False, highlight=False, soft_wrap=True)
    raise typer.Exit(0 if capture.was_ended else capture.exit_status)


@app.command()
def redact(
    file: Annotated[
        Path,
        typer.Argument(help="A record, a trace, a CSV of Nsight Compute, or an export of Nsight Systems."),
    ],
    *,
    output: Output = None,
    keep: Keep = None,
    as_json: AsJson = False,
) -> None:
    """Copy a file without names of hosts and people, paths, secrets and the environment, to share it."""
    from roofwatch.collector.outbox.artefact_folder import redact_file
    from roofwatch.collector.redaction import Redaction, RedactionError, parse_kept
    from roofwatch.terminal import print_json, print_note

    if output is None:
        raise RedactionError(f"{file}: name the copy with -o")
    if output.resolve() == file.resolve():
        raise RedactionError(f"{file}: the copy must not replace the original; give another name with -o")
    redacted = redact_file(file, output, Redaction.of_this_machine(kept=parse_kept(keep or ())))
    if as_json:
        print_json(redacted)
        return
    emptied = f"; emptied: {', '.join(redacted.removed)}" if redacted.removed else ""
    print_note(f"written: {output} ({redacted.format}; {redacted.texts_changed} text(s) changed{emptied})")
