"""`roofwatch static`: commands that compile a suite without running it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from roofwatch.cli.grammar import CommandWithJsonFile, CommandWithVersions, DefaultCommandGroup
from roofwatch.options import AsJson, BaselineFile, RunOptions, SuitePath, run_options

app = typer.Typer()
static_app = typer.Typer(
    cls=DefaultCommandGroup,
    help="Compile every kernel for GPUs that are not present; audit Triton upgrades; capture launches.",
)
app.add_typer(static_app, name="static")


@static_app.command("compile", cls=CommandWithJsonFile)
@run_options("targets", "kernel", "implementation", "tag", "compile_timeout")
def static(
    path: SuitePath = None,
    *,
    options: RunOptions,
    base: Annotated[
        str | None, typer.Option(help="Compile this revision too and compare with it.", show_default=False)
    ] = None,
    baseline: BaselineFile = None,
    accept: Annotated[
        str | None,
        typer.Option(metavar="REASON", help="Add what got worse to the baseline file, with this reason."),
    ] = None,
    tighten: Annotated[
        bool,
        typer.Option("--tighten", help="Update baseline entries that got better, remove deleted ones."),
    ] = False,
    cache: Annotated[bool, typer.Option(help="Reuse cached results of unchanged code.")] = True,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON; --json FILE.json writes it to a file instead.")
    ] = False,
    json_file: Annotated[Path | None, typer.Option("--json-file", hidden=True)] = None,
) -> None:
    """Compile every Triton and CUDA C++ kernel for GPUs that are not present, and compare with a revision.

    Exit status: 1 if machine code got worse, for example spills, 2 if that cannot be decided.
    """
    from roofwatch import comparison_tables, tables
    from roofwatch.static_gate import StaticRequest, answer, notes, to_json
    from roofwatch.terminal import json_text, print_json, print_note, print_table, progress, write_text

    request = StaticRequest(
        path=path,
        plan=replace(options, device="cpu").plan(usual_tag="quick"),  # a compiler can handle the sizes of a GPU
        is_complete=not (options.kernel or options.implementation or options.tag),
        base=base,
        baseline=baseline,
        accept=accept,
        tighten=tighten,
        use_cache=cache,
    )
    with progress("static") as on_progress:
        answered = answer(request, on_progress)
    if json_file is not None:
        write_text(json_file, json_text(to_json(answered)))
    if as_json:
        print_json(to_json(answered))
    else:
        if not answered.facts:
            print_note("nothing to compile: the suite has no Triton or CUDA C++ kernels")
        elif base is None:
            print_table(tables.static_facts(answered.facts))
        if any(item.is_listed for item in answered.applied.judged):
            print_table(comparison_tables.static_changes_table(answered.applied.judged))
        for note in notes(answered):
            print_note(note)
    raise typer.Exit(answered.exit_status)


@static_app.command(cls=CommandWithVersions)
@run_options("targets", "kernel", "implementation", "tag", "compile_timeout")
def audit(
    path: SuitePath = None,
    *,
    triton: Annotated[
        list[str],
        typer.Option(
            help="Releases of Triton, for example 3.6.0 3.7.1. A single one is compared with the running version.",
            show_default=False,
        ),
    ],
    options: RunOptions,
    markdown: Annotated[
        Path | None, typer.Option(help="Write the report to this Markdown file too.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compile a suite under several versions of Triton and show what each upgrade makes worse.

    Each version is installed into its own folder in the cache.

    Exit status: 1 if an upgrade makes code worse, 2 if a version could not be tried.
    """
    from datetime import UTC, datetime

    from roofwatch import auditing
    from roofwatch.ci.static.toolchain_audit import audit_tables, judge_upgrades, to_markdown
    from roofwatch.tables import make_table
    from roofwatch.terminal import print_json, print_note, print_table, printable, progress

    arguments = auditing.static_arguments(path, options)
    versions = auditing.audited_versions(triton)
    with progress("audit") as on_progress:
        builds = auditing.build_under_each(versions, arguments, on_progress)
    upgrades = judge_upgrades(builds)
    status = auditing.exit_status(builds, upgrades)
    tables = audit_tables(builds, upgrades)
    if markdown is not None:
        command = auditing.repeat_command(versions, arguments, markdown)
        date = datetime.now(UTC).date().isoformat()
        auditing.write_report(markdown, to_markdown(tables, command=command, date=date))
    if as_json:
        print_json(auditing.to_json(builds, upgrades, status))
    else:
        for one in tables:
            table = make_table(*one.columns, title=one.title)
            for row in one.rows:
                table.add_row(*map(printable, row))
            print_table(table)
        if markdown is not None:
            print_note(f"written: {markdown}")
    raise typer.Exit(status)


@static_app.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
def capture(
    command: Annotated[
        list[str],
        typer.Argument(
            metavar="-- PROGRAM.py [ARGS]", help="Program to run: a file, or -m and a module.", show_default=False
        ),
    ],
    *,
    output: Annotated[Path, typer.Option("--output", "-o", help="Benchmark file to create or extend.")] = Path(
        "bench_captured.py"
    ),
) -> None:
    """Run a program and write how it launches jitted functions into a benchmark file for `roofwatch static`.

    Without a GPU its kernels run in Triton's interpreter. The exit status is the program's.
    """
    from roofwatch.static_gate import capture_launches

    raise typer.Exit(capture_launches(command, output))
