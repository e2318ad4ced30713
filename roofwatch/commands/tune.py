"""`roofwatch tune`: which configuration of a kernel is the fastest."""

import shlex
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from roofwatch.commands.options import AsJson, RunOptions, SuitePath, shared_options
from roofwatch.console.terminal import EXIT_CANNOT, print_error, print_result, progress

app = typer.Typer()


@app.command()
@shared_options(
    "implementation", "tag", "case", "targets", "device", "threads", "timer", "cache", "timeout"
)
def tune(
    kernel: Annotated[str, typer.Argument(help="Kernel, or a pattern of names.")],
    path: SuitePath = None,
    *,
    options: RunOptions,
    budget: Annotated[float, typer.Option(min=0.0, help="Seconds of timing for each case.")] = 60.0,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Add the choices to this file, which roofwatch.tuned reads."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Find the fastest configuration of a kernel, from configs= of its spec or @triton.autotune.

    What does not compile, does not fit, spills or is predicted much slower is dropped; the rest is
    timed in rounds. Without a GPU, Triton and CUDA C++ are predicted for each target, not measured.

    Exit status 2: nothing could be chosen.
    """
    from roofwatch.measurement.tune import tune as tune_suite
    from roofwatch.measurement.tuned_files import write_tuned
    from roofwatch.tables import tune as tune_tables

    plan = replace(replace(options, kernel=[kernel]).plan(), usual_tag="quick")
    with progress("tune") as on_progress:
        result = tune_suite(path, plan, on_progress, budget_s=budget, timeout_s=options.timeout)
    lines = [tune_tables.headline(result)]
    if output is not None:
        table = write_tuned(
            output,
            result.cases,
            command=shlex.join(["roofwatch", *sys.argv[1:]]),
            made_on=datetime.now(UTC).date(),
        )
        lines.append(f"{output}: {len(table.entries)} entries; read it with roofwatch.tuned")
    document = {"cases": result.cases, "failures": result.failures}
    print_result(document, *lines, *tune_tables.tables(result.cases), as_json=as_json)
    for failure in result.failures:
        print_error(failure)
    if all(case.chosen is None for case in result.cases):
        raise typer.Exit(EXIT_CANNOT)
