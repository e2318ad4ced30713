"""`roofwatch static`: commands that compile a suite without running it."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from roofwatch.commands.options import AsJson, RunOptions, SuitePath, shared_options
from roofwatch.console.terminal import EXIT_WRONG, print_result, progress

if TYPE_CHECKING:
    from rich.table import Table


class DefaultCommandGroup(TyperGroup):
    """Runs its default if no command is named: `static PATH` next to `static capture`."""

    default_command = "compile"

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        is_named = bool(args) and args[0] in self.commands
        return super().parse_args(ctx, args if is_named else [self.default_command, *args])


app = typer.Typer()
static_app = typer.Typer(
    cls=DefaultCommandGroup,
    help="Compile every kernel for GPUs that are not present; capture launches.",
)
app.add_typer(static_app, name="static")


@static_app.command("compile")
@shared_options("targets", "kernel", "implementation", "tag", "timeout")
def static(
    path: SuitePath = None,
    *,
    options: RunOptions,
    base: Annotated[
        str | None, typer.Option(help="Compile this revision too and compare with it.")
    ] = None,
    base_triton: Annotated[
        str | None,
        typer.Option(
            metavar="VERSION",
            help="Compile with this Triton too: a version, a wheel, or an environment's folder.",
        ),
    ] = None,
    extra_index_url: Annotated[
        str | None, typer.Option(metavar="URL", help="Another package index for --base-triton.")
    ] = None,
    accept: Annotated[
        str | None,
        typer.Option(
            metavar="REASON", help="Add what got worse to the baseline file, with this reason."
        ),
    ] = None,
    tighten: Annotated[
        bool,
        typer.Option(
            "--tighten", help="Update baseline entries that got better, remove deleted ones."
        ),
    ] = False,
    cache: Annotated[bool, typer.Option(help="Reuse cached results of unchanged code.")] = True,
    as_json: AsJson = False,
) -> None:
    """Compile every Triton and CUDA C++ kernel for GPUs that are not present, and compare with a
    revision.

    Another release of Triton is installed into a folder of its own in the cache.

    It also proves that offsets fit into 32 bits, and counts what each call costs in torch.

    Exit status: 1 if code or calls got worse or an offset overflows, 2 if that cannot be decided.
    """
    from roofwatch.ci.static.comparison import is_listed
    from roofwatch.configuration.settings import load_settings
    from roofwatch.static.static_gate import answer, notes, to_json
    from roofwatch.tables import code as code_tables

    plan = replace(options, device="cpu").plan(
        usual_tag="quick"
    )  # a compiler can handle the sizes of a GPU
    with progress("static") as on_progress:
        answered = answer(
            path,
            plan,
            on_progress,
            is_complete=not (options.kernel or options.implementation or options.tag),
            base=base,
            base_triton=base_triton,
            extra_index_url=extra_index_url,
            accept=accept,
            tighten=tighten,
            use_cache=cache,
            predicted_fails=load_settings().check.predicted == "fail",
        )
    parts: list[str | Table] = []
    if not answered.facts:
        parts.append("nothing to compile: the suite has no Triton or CUDA C++ kernels")
    elif answered.base is None:
        parts.append(code_tables.headline(answered.facts, path))
    parts += notes(answered)
    if answered.facts and answered.base is None:
        parts.append(code_tables.static_facts(answered.facts))
    if answered.base is None and answered.proofs:
        parts.append(code_tables.analyses(answered.proofs, answered.costs))
    if any(map(is_listed, answered.applied.changes)):
        # it takes longer to load than cached results
        from roofwatch.tables import changes as change_tables

        parts.append(change_tables.changes_table(answered.applied.changes))
    print_result(to_json(answered), *parts, as_json=as_json)
    raise typer.Exit(answered.exit_status)


@static_app.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False}
)
def capture(
    command: Annotated[
        list[str],
        typer.Argument(
            metavar="-- PROGRAM.py [ARGS]", help="Program to run: a file, or -m and a module."
        ),
    ],
    *,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Benchmark file to create or extend.")
    ] = Path("bench_captured.py"),
) -> None:
    """Run a program and write how it launches jitted functions into a benchmark file for `roofwatch
    static`.

    Without a GPU its kernels run in Triton's interpreter. The exit status is the program's.
    """
    from roofwatch.static.static_gate import capture_launches

    raise typer.Exit(capture_launches(command, output))


@static_app.command("audit-tables")
@shared_options("targets", "kernel", "implementation", "tag", "case", "timeout")
def audit_tables(
    suite: Annotated[Path, typer.Argument(help="Benchmark file with the kernel.")],
    tables: Annotated[
        list[Path],
        typer.Argument(metavar="TABLE...", help="JSON or CSV files with configurations."),
    ],
    *,
    options: RunOptions,
    base_triton: Annotated[
        str | None,
        typer.Option(metavar="VERSION", help="Compile with this Triton too, and compare."),
    ] = None,
    extra_index_url: Annotated[
        str | None, typer.Option(metavar="URL", help="Another package index for --base-triton.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compile each row of tuned tables for the device that it names: does it fit, spill, or is it
    stale?

    Exit status: 1 if a row does not compile or fit, or got worse since --base-triton.
    """
    from roofwatch.ci.static.comparison import is_listed
    from roofwatch.measurement.audit import audit_tables as audit
    from roofwatch.model.tuning import Loss
    from roofwatch.model.verdict import Verdict
    from roofwatch.tables import audit as audited_tables
    from roofwatch.tables.changes import changes_table

    plan = replace(options, device="cpu").plan(usual_tag="quick")
    with progress("audit-tables") as on_progress:
        audited = audit(
            suite,
            tables,
            plan,
            on_progress,
            base_triton=base_triton,
            extra_index_url=extra_index_url,
        )
    parts: list[str | Table] = [audited_tables.headline(audited), audited_tables.table(audited)]
    if any(map(is_listed, audited.changes)):
        parts.append(changes_table(audited.changes))
    document = {
        "case_id": audited.case_id,
        "rows": audited.rows,
        "changes": audited.changes,
    }
    print_result(document, *parts, as_json=as_json)
    unusable = {Loss.NOT_COMPILED, Loss.DOES_NOT_FIT}
    is_wrong = any(row.compiled.loss in unusable for row in audited.rows)
    is_worse = any(change.verdict is Verdict.REGRESSED for change in audited.changes)
    raise typer.Exit(EXIT_WRONG if is_wrong or is_worse else 0)


@app.command("upgrade-report")
@shared_options("targets", "kernel", "implementation", "tag", "timeout")
def upgrade_report(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[SUITE]...", help="Benchmark files or folders; else the bundled."),
    ] = None,
    *,
    options: RunOptions,
    triton: Annotated[
        list[str],
        typer.Option(
            metavar="VERSION",
            help="A version, wheel or environment; give two or more, the oldest first.",
        ),
    ],
    extra_index_url: Annotated[
        str | None, typer.Option(metavar="URL", help="Another package index.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="File to write; default: print.")
    ] = None,
) -> None:
    """Compile suites with several releases of Triton and write what gets better or worse."""
    from roofwatch.console.terminal import write_text
    from roofwatch.static.upgrade_report import write_page

    plan = replace(options, device="cpu").plan(usual_tag="quick")
    with progress("upgrade-report") as on_progress:
        page = write_page(paths or [], triton, plan, on_progress, extra_index_url=extra_index_url)
    if output is None:
        typer.echo(page)
    else:
        write_text(output, page)
