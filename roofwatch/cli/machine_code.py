"""Commands that compile a suite and run none of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from roofwatch.cli.grammar import CommandWithJsonFile, CommandWithVersions, DefaultCommandGroup
from roofwatch.options import AsJson, BaselineFile, RunOptions, SuitePath, run_options

# Everything else is imported by the command that needs it: `roofwatch --help` loads no torch, database or browser.
app = typer.Typer()
static_app = typer.Typer(
    cls=DefaultCommandGroup,
    help="Compile every kernel for GPUs that need not be there, and judge it; audit toolchains; capture signatures.",
)
app.add_typer(static_app, name="static")


@static_app.command("compile", cls=CommandWithJsonFile)
@run_options("targets", "kernel", "implementation", "tag", "compile_timeout")
def static(
    path: SuitePath = None,
    *,
    module: Annotated[
        str | None,
        typer.Option(
            metavar="PACKAGE.MODULE",
            help="Compile this module's jitted functions as their signatures say; PATH is the file of signatures then, "
            "roofwatch-signatures.toml if left out.",
            show_default=False,
        ),
    ] = None,
    options: RunOptions,
    base: Annotated[
        str | None, typer.Option(help="Compare with this revision, compiled in the same job.", show_default=False)
    ] = None,
    baseline: BaselineFile = None,
    accept: Annotated[
        str | None,
        typer.Option(metavar="REASON", help="Write what got worse into the baseline file, with a reason."),
    ] = None,
    tighten: Annotated[
        bool, typer.Option("--tighten", help="Write what got better into the baseline file, and drop what is gone.")
    ] = False,
    cache: Annotated[
        bool, typer.Option(help="Answer from what was found out before where nothing has changed.")
    ] = True,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON for machines; --json FILE.json writes it into a file.")
    ] = False,
    json_file: Annotated[Path | None, typer.Option("--json-file", hidden=True)] = None,
) -> None:
    """Compile every Triton and CUDA C++ kernel for GPUs that need not be there, and judge it against a revision.

    PATH may also be a file of signatures (.toml), which `roofwatch static capture` writes; `roofwatch static audit`
    compiles under several versions of Triton.

    Exit status 1 means that machine code got worse: it spills, lost a target or its tensor cores, reads in narrower
    steps, or is worse than what the baseline file accepts. 2 means that it cannot be told.
    """
    from roofwatch import tables
    from roofwatch.comparison_tables import static_changes_table
    from roofwatch.static_gate import StaticRequest, answer, notes, to_json
    from roofwatch.terminal import json_text, print_json, print_note, print_table, progress, write_text

    # a compiler has no trouble with the sizes of a GPU
    plan = replace(options, device="cpu").plan(usual_tag="quick")
    request = StaticRequest(
        path=path,
        module=module,
        plan=plan,
        is_whole=not (options.kernel or options.implementation or options.tag),
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
            print_note("nothing to compile: no implementation launches code of Triton or CUDA C++ of its own")
        elif base is None:
            print_table(tables.static_facts(answered.facts))
        if any(item.is_told for item in answered.held.judged):
            print_table(static_changes_table(answered.held.judged))
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
            help="Releases of Triton, for example 3.6.0 3.7.1; one alone is compared with the running version.",
            show_default=False,
        ),
    ],
    options: RunOptions,
    markdown: Annotated[
        Path | None, typer.Option(help="Write the report into this Markdown file too.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compile a suite under several versions of Triton, and say what each upgrade makes worse on which target.

    Each version gets a virtual environment in the cache folder. Exit status 1 means that an upgrade makes something
    worse, 2 that a version could not be tried.
    """
    from datetime import UTC, datetime

    from roofwatch import auditing
    from roofwatch.ci.static.toolchain_audit import audit_to_markdown, judge_upgrades, judge_whole_way
    from roofwatch.terminal import print_json, print_note, print_table, progress

    selection = auditing.Selection(
        path=path,
        targets=options.targets,
        kernels=tuple(options.kernel or ()),
        implementations=tuple(options.implementation or ()),
        tags=tuple(options.tag or ()),
        compile_timeout_s=options.compile_timeout,
    )
    versions = auditing.audited_versions(triton)
    with progress("audit") as on_progress:
        builds = auditing.build_under_each(versions, selection, on_progress)
    upgrades, whole_way = judge_upgrades(builds), judge_whole_way(builds)
    every = [*upgrades, *([whole_way] if whole_way else [])]
    status = auditing.exit_status(builds, upgrades)
    if markdown is not None:
        command = auditing.repeat_command(versions, selection, markdown)
        made_on = datetime.now(UTC).date().isoformat()
        auditing.write_report(
            markdown, audit_to_markdown(builds, upgrades, whole_way, command=command, made_on=made_on)
        )
    if as_json:
        print_json(auditing.to_json(builds, every, status))
    else:
        for upgrade in upgrades:
            print_table(auditing.upgrade_table(upgrade))
        print_table(auditing.summary_table(every))
        if markdown is not None:
            print_note(f"written: {markdown}")
    raise typer.Exit(status)


@static_app.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
def capture(
    command: Annotated[
        list[str],
        typer.Argument(
            metavar="-- PROGRAM.py [ARGS]", help="What to run: a file, or -m and a module.", show_default=False
        ),
    ],
    *,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="File of signatures; what it has already stays.")
    ] = Path("roofwatch-signatures.toml"),
) -> None:
    """Run a program, and note how it launches jitted functions, for `roofwatch static` to compile them so.

    Without a GPU its kernels run in Triton's interpreter. The exit status is the program's.
    """
    from roofwatch.measuring.capturing import capture_signatures

    raise typer.Exit(capture_signatures(command, output))
