"""Commands that read files: of profilers, and records, which they store and compare."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from roofwatch.commands.judgement import print_judgement
from roofwatch.options import AsJson, BaselineFile, Output, RecordFile

# Everything else is imported by the command that needs it: `roofwatch --help` loads no torch, database or browser.
app = typer.Typer()


@app.command()
def read(
    file: Annotated[
        Path, typer.Argument(help="A profiler's file; what it is shows in its content.", show_default=False)
    ],
    *,
    as_json: AsJson = False,
) -> None:
    """Print what is in a profiler's file: a torch.profiler trace, or one of Nsight Compute or Nsight Systems."""
    from collector.profiles.recognise import read_profile
    from roofwatch.reading import tables
    from roofwatch.terminal import print_json, print_table

    profile = read_profile(file)
    if as_json:
        print_json(profile)
    else:
        for table in tables(profile):
            print_table(table)


@app.command()
def ingest(
    files: Annotated[list[Path], typer.Argument(help="Record files; a folder stands for its *.json files.")],
    *,
    as_json: AsJson = False,
) -> None:
    """Store records, once each however often they are given, and judge the projects that they belong to."""
    from ci.judge import judge_project
    from db.ingest import ingest_record
    from roofwatch import tables
    from roofwatch.arguments import open_configured_store
    from roofwatch.records import read_records
    from roofwatch.terminal import print_json, print_note, print_table

    records = read_records(files)  # all of them before the first is stored: a bad file stops the command early
    with open_configured_store() as engine:
        results = [ingest_record(engine, record) for record in records]
        projects = sorted({result.project for result in results})
        regressions = [found for project in projects for found in judge_project(engine, project)]
    if as_json:
        print_json({"runs": results, "regressions": regressions})
        return
    new = sum(result.was_new for result in results)
    print_note(f"{new} new record(s) stored, {len(results) - new} known before; project(s): {', '.join(projects)}")
    if regressions:
        print_table(tables.regressions(regressions))


@app.command()
def compare(base: RecordFile, head: RecordFile, *, baseline: BaselineFile = None, as_json: AsJson = False) -> None:
    """Compare two records: base, then head. Exit status 1 means a regression, 2 that it cannot be told."""
    from ci.gate import exit_code
    from ci.pull_request import judge_pull_request
    from collector.record import RunRecord
    from roofwatch.static_gate import baseline_for_records
    from roofwatch.terminal import print_json

    accepted = baseline_for_records(baseline)
    judgement = judge_pull_request(RunRecord.read(base), RunRecord.read(head), baseline=accepted)
    if as_json:
        print_json({"judgement": judgement, "exit_code": exit_code(judgement)})
    else:
        print_judgement(judgement)
    raise typer.Exit(exit_code(judgement))


@app.command()
def report(base: RecordFile, head: RecordFile, *, output: Output = None, baseline: BaselineFile = None) -> None:
    """Write the pull-request comment for two records as Markdown. Exit status as for compare."""
    from ci.gate import exit_code
    from ci.pull_request import judge_pull_request
    from ci.report import to_markdown
    from collector.record import RunRecord
    from roofwatch.static_gate import baseline_for_records
    from roofwatch.terminal import print_note, write_text

    accepted = baseline_for_records(baseline)
    judgement = judge_pull_request(RunRecord.read(base), RunRecord.read(head), baseline=accepted)
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

    from collector.record import json_schema
    from roofwatch.terminal import write_text

    text = json.dumps(json_schema(), indent=2, sort_keys=True) + "\n"
    if output is None:
        print(text, end="")
    else:
        write_text(output, text)
