"""Commands that read files: of profilers, and records, which they store and compare."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from roofwatch.cli.judgement import print_judgement
from roofwatch.options import (
    AsJson,
    BaselineFile,
    ComparedProject,
    ComparedSide,
    HasStoredFloor,
    NoiseFloorFile,
    Output,
    RunnerClass,
    ServerUrl,
    StoreUrl,
)

# Everything else is imported by the command that needs it: `roofwatch --help` loads no torch, database or browser.
app = typer.Typer()


@app.command()
def read(
    file: Annotated[
        Path, typer.Argument(help="A profiler's file; what it is shows in its content.", show_default=False)
    ],
    *,
    top: Annotated[
        int,
        typer.Option(
            min=0,
            metavar="N",
            help="Kernels that are told: of a trace those that took most time, of Nsight Compute the first; 0: all.",
        ),
    ] = 10,
    as_json: AsJson = False,
) -> None:
    """Print what is in a profiler's file: a torch.profiler trace, or one of Nsight Compute or Nsight Systems."""
    from roofwatch.collector.profiling.profile_formats import read_profile
    from roofwatch.profiles.reading import tables
    from roofwatch.terminal import print_json, print_table

    profile = read_profile(file, top=top or None)
    if as_json:
        print_json(profile)
    else:
        for table in tables(profile, top=top or None):
            print_table(table)


@app.command()
def ingest(
    files: Annotated[list[Path], typer.Argument(help="Record files; a folder stands for those in it.")],
    *,
    replace: Annotated[
        bool, typer.Option("--replace", help="Where a run is stored with other content, put this in its place.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Store records, once each however often they are given, and judge the projects that they belong to."""
    from uuid import UUID

    from roofwatch import tables
    from roofwatch.arguments import open_configured_store
    from roofwatch.ci.history.analyse import analyse_project
    from roofwatch.collector.record.record import Artefact
    from roofwatch.cycles import look_for_cycles_seldom
    from roofwatch.db.ingest.ingest import ingest_record
    from roofwatch.db.ingest.result import IngestResult, OnConflict
    from roofwatch.records import read_record_files
    from roofwatch.store.artefacts import store_artefacts
    from roofwatch.terminal import print_error, print_json, print_note, print_table

    look_for_cycles_seldom()
    found = read_record_files(files)  # all of them before the first is stored: a bad file stops the command early
    on_conflict = OnConflict.REPLACE if replace else OnConflict.REFUSE
    results: list[IngestResult] = []
    named: list[tuple[UUID, tuple[Artefact, ...], Path]] = []
    with open_configured_store() as engine:
        for file, record in found:
            results.append(ingest_record(engine, record, on_conflict=on_conflict))
            named.append((record.run_id, record.artefacts, file))
        lacking = [reason for each in named for reason in store_artefacts(engine, *each)]
        projects = sorted({result.project for result in results})
        regressions = [found for project in projects for found in analyse_project(engine, project)]
    if as_json:
        print_json({"runs": results, "regressions": regressions, "lacking_artefacts": lacking})
        return
    for reason in lacking:
        print_error(reason)
    new, replaced = sum(result.was_new for result in results), sum(result.was_replaced for result in results)
    known = len(results) - new - replaced
    in_place = f"{replaced} put in the place of others, " if replaced else ""
    print_note(f"{new} new record(s) stored, {in_place}{known} known before; project(s): {', '.join(projects)}")
    if regressions:
        print_table(tables.regressions(regressions))


@app.command()
def push(
    files: Annotated[
        list[Path] | None,
        typer.Argument(help="Record files; a folder stands for those in it. Left out: what waits to be sent."),
    ] = None,
    *,
    url: ServerUrl = None,
    spool: Annotated[
        Path | None,
        typer.Option(help="Folder of what waits to be sent. Left out: spool in data_dir.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Send records to a server that speaks POST /v1/records, and whatever could not be sent before.

    A record stays on this machine until the server acknowledges it by its id and content. The token is read from the
    environment variable ROOFWATCH_TOKEN. Exit status 1: the server refused a record for good, or an artefact of one, or
    that did not lie beside it. 2: one is left for later, or cannot be read here.
    """
    from roofwatch.collector.outbox.artefact_folder import ArtefactFolder
    from roofwatch.records import read_record_files
    from roofwatch.store.pushing import exit_status, sender_and_spool, summary
    from roofwatch.terminal import print_json, print_note

    sender, waiting = sender_and_spool(url, spool)
    for file, record in read_record_files(files or []):
        waiting.submit(record, ArtefactFolder.beside(file))
    delivery = waiting.deliver(sender, send_artefact=sender.send_artefact)
    if as_json:
        print_json(delivery)
    else:
        print_note("\n".join(summary(delivery, waiting)))
    raise typer.Exit(exit_status(delivery))


@app.command()
def fetch(
    commits: Annotated[
        list[str], typer.Argument(metavar="COMMIT", help="Shas, or beginnings of them.", show_default=False)
    ],
    *,
    project: Annotated[str, typer.Option(help="The project that they are of.", show_default=False)],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder that the records go into.")] = Path(
        "roofwatch-records"
    ),
    url: ServerUrl = None,
    as_json: AsJson = False,
) -> None:
    """Get the newest record of each commit from a server, to compare with, without a database.

    The token is read from the environment variable ROOFWATCH_TOKEN; the scope `read` will do.
    """
    from dataclasses import asdict

    from roofwatch.store.fetching import fetch_records
    from roofwatch.terminal import print_json, print_note

    fetched = fetch_records(url, project, commits, output)
    if as_json:
        print_json({"records": [asdict(one) | {"path": str(one.path)} for one in fetched]})
    else:
        print_note("\n".join(f"written: {one.path} (commit {one.commit_sha[:12]})" for one in fetched))


@app.command()
def compare(
    base: ComparedSide,
    head: ComparedSide,
    *,
    baseline: BaselineFile = None,
    noise_floor: NoiseFloorFile = None,
    stored_floor: HasStoredFloor = True,
    project: ComparedProject = None,
    runner_class: RunnerClass = None,
    url: StoreUrl = None,
    as_json: AsJson = False,
) -> None:
    """Compare two records: base, then head. Exit status 1 means a regression, 2 that it cannot be told.

    A side is a file, or with --project a commit or run that is stored, from the database or through a server.
    """
    from roofwatch.ci.gate import exit_code
    from roofwatch.ci.report.pull_request import judge_pull_request
    from roofwatch.measuring.calibrating import read_noise_floor
    from roofwatch.static_gate import BASELINE_NAME, read_baseline
    from roofwatch.store.sides import read_sides
    from roofwatch.terminal import print_json

    accepted = read_baseline(baseline, Path(BASELINE_NAME))
    floor = read_noise_floor(noise_floor)
    sides = read_sides(
        *(base, head),
        project=project,
        url=url,
        runner_class=runner_class,
        with_noise_floor=stored_floor and floor is None,
    )
    judgement = judge_pull_request(sides.base, sides.head, baseline=accepted, noise_floor=floor or sides.noise_floor)
    if as_json:
        runs = [sides.base.run_id, sides.head.run_id]
        print_json({"runs": runs, "judgement": judgement, "exit_code": exit_code(judgement)})
    else:
        print_judgement(judgement)
    raise typer.Exit(exit_code(judgement))


@app.command()
def report(
    base: ComparedSide,
    head: ComparedSide,
    *,
    output: Output = None,
    junit: Annotated[
        Path | None, typer.Option(help="Write JUnit XML here too, for other systems of CI.", show_default=False)
    ] = None,
    sarif: Annotated[
        Path | None, typer.Option(help="Write SARIF here too, for code scanning.", show_default=False)
    ] = None,
    baseline: BaselineFile = None,
    noise_floor: NoiseFloorFile = None,
    stored_floor: HasStoredFloor = True,
    project: ComparedProject = None,
    runner_class: RunnerClass = None,
    url: StoreUrl = None,
) -> None:
    """Write the pull-request comment for two records as Markdown. Sides and exit status are as for compare."""
    from roofwatch import __version__
    from roofwatch.ci.gate import exit_code
    from roofwatch.ci.report.comment import to_markdown
    from roofwatch.ci.report.interchange import to_junit, to_sarif
    from roofwatch.ci.report.pull_request import judge_pull_request
    from roofwatch.measuring.calibrating import read_noise_floor
    from roofwatch.static_gate import BASELINE_NAME, read_baseline
    from roofwatch.store.sides import read_sides
    from roofwatch.terminal import print_note, write_text

    accepted = read_baseline(baseline, Path(BASELINE_NAME))
    floor = read_noise_floor(noise_floor)
    sides = read_sides(
        *(base, head),
        project=project,
        url=url,
        runner_class=runner_class,
        with_noise_floor=stored_floor and floor is None,
    )
    judgement = judge_pull_request(sides.base, sides.head, baseline=accepted, noise_floor=floor or sides.noise_floor)
    if junit is not None:
        write_text(junit, to_junit(judgement))
    if sarif is not None:
        write_text(sarif, to_sarif(judgement, version=__version__))
    if output is None:
        print(to_markdown(judgement), end="")
    else:
        write_text(output, to_markdown(judgement))
        print_note(f"written: {output}")
    raise typer.Exit(exit_code(judgement))


@app.command()
def schema(*, output: Output = None) -> None:
    """Print the JSON Schema of the record."""
    import json

    from roofwatch.collector.record.record import json_schema
    from roofwatch.terminal import write_text

    text = json.dumps(json_schema(), indent=2, sort_keys=True) + "\n"
    if output is None:
        print(text, end="")
    else:
        write_text(output, text)
