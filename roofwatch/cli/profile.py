"""Commands that profile any program, and that make a profile fit to be shown to others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from roofwatch.options import AsJson, Keep, Output

# Everything else is imported by the command that needs it: `roofwatch --help` loads no torch, database or browser.
app = typer.Typer()


@app.command(context_settings={"allow_interspersed_args": False})
def profile(
    command: Annotated[
        list[str],
        typer.Argument(help="After --, the command as in a shell: python train.py, torchrun ...", show_default=False),
    ],
    *,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Folder for the traces. Left out: one in roofwatch-profiles/.", show_default=False
        ),
    ] = None,
    after: Annotated[float, typer.Option(help="Begin to record so many seconds after torch is imported.", min=0)] = 0,
    seconds: Annotated[
        float, typer.Option("--for", help="Record for so many seconds; 0 records to the end.", min=0)
    ] = 20,
    warmup: Annotated[int, typer.Option(help="Begin after so many steps of an optimizer.", min=0)] = 0,
    steps: Annotated[
        int | None, typer.Option(help="End after so many steps of an optimizer.", min=1, show_default=False)
    ] = None,
    max_seconds: Annotated[
        float | None,
        typer.Option(help="End the program itself after so many seconds, once its trace is written.", min=1),
    ] = None,
    shapes: Annotated[bool, typer.Option("--shapes", help="Record the shapes of each operator's inputs.")] = False,
    stacks: Annotated[
        bool, typer.Option("--stacks", help="Record Python's functions too: says more, and slows the program.")
    ] = False,
    html: Annotated[
        Path | None, typer.Option(help="Write a picture of the time too; needs the server extra.", show_default=False)
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option(help="Record file of the run that the traces belong to: it will name them.", show_default=False),
    ] = None,
    keep: Keep = None,
    as_json: AsJson = False,
) -> None:
    """Run any PyTorch program, without a change to it, and say where its time goes; its exit status is passed on."""
    from roofwatch.collector.profiling.profile_program import Window, profile_program
    from roofwatch.collector.record.record import RunRecord
    from roofwatch.collector.redaction import Redaction, parse_kept
    from roofwatch.profiles.profiling import folder_for, report_of
    from roofwatch.profiles.tables import print_report
    from roofwatch.store.artefacts import name_artefacts
    from roofwatch.terminal import console, print_json, write_text

    if html is not None:
        import roofwatch.profiles.tables  # noqa: F401  what it needs is missed before the program runs, not after it
    known = None if record is None else RunRecord.read(record)
    folder = output or folder_for(command)
    window = Window(
        after_s=after,
        for_s=seconds or None,
        warmup_steps=warmup,
        steps=steps,
        with_shapes=shapes,
        with_stacks=stacks,
    )
    redaction = Redaction.of_this_machine(kept=None if keep is None else parse_kept(keep))
    capture = profile_program(
        command, folder, window=window, redaction=redaction, max_seconds=max_seconds, stdout_to_stderr=as_json
    )
    report = report_of(capture, folder)
    if html is not None:
        from roofwatch.profiles.figure import to_html

        write_text(html, to_html(report))
    if record is not None and known is not None:
        files = [folder / trace.trace for trace in report.traces] + ([] if html is None else [html])
        # they were written without what must be left out
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
        typer.Argument(
            help="A record, a trace, a CSV of Nsight Compute, or an sqlite export of Nsight Systems.",
            show_default=False,
        ),
    ],
    *,
    output: Output = None,
    keep: Keep = None,
    as_json: AsJson = False,
) -> None:
    """Copy a file without names of hosts and people, paths, secrets and the environment, so that it can be shared."""
    from roofwatch.collector.outbox.artefact_folder import redact_file
    from roofwatch.collector.redaction import Redaction, RedactionError, parse_kept
    from roofwatch.terminal import print_json, print_note

    if output is None:
        raise RedactionError(f"{file}: say where the copy goes, with -o")
    if output.resolve() == file.resolve():
        raise RedactionError(f"{file}: the copy must not replace the original; give another name with -o")
    # files come from anywhere: this machine's folders are no part of them
    done = redact_file(file, output, Redaction.of_this_machine(kept=parse_kept(keep or ())))
    if as_json:
        print_json(done)
        return
    emptied = f"; emptied: {', '.join(done.removed)}" if done.removed else ""
    print_note(f"written: {output} ({done.format}; {done.texts_changed} text(s) changed{emptied})")
