"""The command line. Every command reads, calls one function of the package that owns the work, and prints.

Exit status: 0 fine, 1 a regression, 2 could not tell or could not do it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from roofwatch import __version__

# Everything else is imported by the command that needs it: `roofwatch --help` loads no torch, database or browser.
if TYPE_CHECKING:
    from ci.pull_request import PullRequestJudgement

EXIT_WRONG = 1
EXIT_CANNOT = 2

app = typer.Typer(
    name="roofwatch",
    help="Which commit made a GPU kernel slower, by how much, how far it is from the roof, and why.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
db_app = typer.Typer(help="The database: bring its schema up to date, show its state.", no_args_is_help=True)
app.add_typer(db_app, name="db")

SuitePath = Annotated[
    Path | None,
    typer.Argument(
        help="Benchmark file, or folder with bench_*.py files. Left out: the suite that comes with roofwatch.",
        show_default=False,
    ),
]
KernelPattern = Annotated[
    list[str] | None, typer.Option("--kernel", "-k", help="Only kernels that match; may be given again.")
]
ImplementationPattern = Annotated[
    list[str] | None, typer.Option("--implementation", "-i", help="Only these implementations; may be given again.")
]
Tags = Annotated[
    list[str] | None,
    typer.Option(
        "--tag",
        "-t",
        help="Only cases with this tag, for example quick, full, 70b or decode; given again: with each of them. "
        "Left out: quick on a GPU, small on a CPU.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
TargetList = Annotated[
    str | None, typer.Option(help="GPU targets to compile for, separated by commas, for example sm_90,gfx942.")
]
RecordFile = Annotated[Path, typer.Argument(help="Record file.", show_default=False)]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="Where to write it.", show_default=False)]


def main() -> None:
    """Run the command line; an expected error is one line on standard error and exit status 2."""
    from roofwatch.terminal import fail, stop_on_sigterm

    debug = "--debug" in sys.argv[1:]
    stop_on_sigterm()
    # A user's PYTHONPATH may hold packages named like ours; this process runs none of the user's code.
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    try:
        app()
    except KeyboardInterrupt:
        fail("interrupted; what was measured and written before is kept", exit_status=130)
    except Exception as error:
        if debug:
            raise
        fail(_describe(error))


def _describe(error: Exception) -> str:
    from roofwatch.terminal import is_expected

    if is_expected(error):
        return str(error)
    if isinstance(error, ModuleNotFoundError):
        # the core, which is all that a machine that only measures needs, has no database, statistics or dashboard
        return f"this command needs {error.name}; install it with: pip install 'roofwatch[server]'"
    return f"{type(error).__name__}: {error} (unexpected: run again with --debug for the traceback)"


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"roofwatch {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    del debug, version  # main() and the callback have seen to them


@app.command("list")
def list_kernels(path: SuitePath = None, *, as_json: AsJson = False) -> None:
    """List the kernels of a suite with their cases and implementations."""
    from collector.nursery import Nursery
    from collector.worker import Worker
    from roofwatch import tables
    from roofwatch.arguments import suite_source
    from roofwatch.listing import summary
    from roofwatch.terminal import print_json, print_table

    with Nursery() as nursery, Worker(nursery, suite_source(path)) as worker:
        info = worker.start()
    if as_json:
        print_json({"kernels": [summary(kernel) for kernel in info.kernels]})
    else:
        print_table(tables.kernels(info.kernels))


@app.command()
def check(
    target: Annotated[
        str,
        typer.Argument(
            metavar="KERNEL|FILE",
            help="A kernel that comes with roofwatch (or a pattern such as 'matmul*'), or a benchmark file or folder.",
            show_default=False,
        ),
    ],
    *,
    case: Annotated[
        list[str] | None,
        typer.Option(
            "--case",
            "-c",
            help="Only cases whose id matches, edges too; may be given again. Left out: what takes moments.",
            show_default=False,
        ),
    ] = None,
    implementation: Annotated[
        list[str] | None,
        typer.Option(
            "--implementation",
            "-i",
            help="Only these implementations; may be given again. Left out: all but torch.compile's.",
            show_default=False,
        ),
    ] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; a GPU where there is one if left out.")] = None,
    as_json: AsJson = False,
) -> None:
    """Check results and gradients at usual and odd sizes and in other memory layouts; explain what is wrong.

    Exit status 1 means that something is wrong or failed, 2 that nothing could be checked here.
    """
    from collector.check_run import CheckPlan, check_suite
    from collector.nursery import Nursery
    from roofwatch import tables
    from roofwatch.checking import check_target, exit_status, explanation, repeat_command, summary, to_json
    from roofwatch.terminal import print_json, print_note, print_table, progress

    asked = check_target(target)
    plan = CheckPlan(
        kernels=asked.kernels,
        cases=tuple(case) if case else None,
        implementations=tuple(implementation) if implementation else None,
        device=device,
    )
    with progress(target) as on_progress, Nursery() as nursery:
        reports = check_suite(asked.source, plan, on_progress, nursery=nursery)
    if as_json:
        print_json(to_json(asked, reports, device))
    else:
        print_table(tables.checks(reports))
        print_note(summary(reports))
        for report in reports:
            if report.has_failed:
                print_note("\n".join(["", *explanation(report), f"  repeat: {repeat_command(asked, report, device)}"]))
    raise typer.Exit(exit_status(reports))


@app.command()
def run(
    path: SuitePath = None,
    *,
    output: Output = None,
    kernel: KernelPattern = None,
    implementation: ImplementationPattern = None,
    tag: Tags = None,
    targets: TargetList = None,
    static: Annotated[bool, typer.Option(help="Compile for the targets too.")] = True,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; a GPU where there is one if left out.")] = None,
    threads: Annotated[int, typer.Option(min=1, help="Threads of torch on the CPU.")] = 1,
    blocks: Annotated[int, typer.Option(min=1, help="Blocks of samples per measurement.")] = 3,
    project: Annotated[str | None, typer.Option(help="Project name; the repository's folder if left out.")] = None,
    as_json: AsJson = False,
) -> None:
    """Check, compile and time a suite at the current commit, and write a record file.

    Exit status 1 means that the record is written and something in it failed: a wrong result, a crash, code that does
    not compile. What this machine cannot run has not failed.
    """
    from collector.nursery import Nursery
    from collector.run import collect_run
    from collector.whole_file import check_writable
    from roofwatch import tables
    from roofwatch.arguments import run_plan, suite_at
    from roofwatch.records import failed_results
    from roofwatch.terminal import print_error, print_json, print_note, print_table, progress

    plan = run_plan(
        kernels=kernel,
        implementations=implementation,
        tags=tag,
        targets=targets if static else "",
        device=device,
        threads=threads,
        blocks=blocks,
    )
    suite = suite_at(path, project)
    destination = output or Path("roofwatch-records")
    if not destination.suffix:
        destination /= f"{suite.commit.sha[:12]}-{suite.project.replace('/', '-')}.json"
    check_writable(destination)
    with progress(suite.project) as on_progress, Nursery() as nursery:
        record = collect_run(suite, plan, on_progress, nursery=nursery)
    record.write(destination)
    if as_json:
        print_json({"record": str(destination), **record.model_dump(mode="json")})
    else:
        print_table(tables.measurements(record))
        if record.static_facts:
            print_table(tables.static_facts(record.static_facts))
        print_note(f"record: {destination}   next: roofwatch ingest {destination}")
    failures = list(failed_results(record))
    for failure in failures:
        print_error(failure)
    if failures:
        raise typer.Exit(EXIT_WRONG)


@app.command()
def ab(
    path: Annotated[Path, typer.Argument(help="Benchmark file or folder, in a git repository.", show_default=False)],
    *,
    base: Annotated[str, typer.Option(help="Revision to compare against.")],
    head: Annotated[str | None, typer.Option(help="Revision that is new; the work tree as it is if left out.")] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the two records.")] = Path(
        "roofwatch-records"
    ),
    kernel: KernelPattern = None,
    implementation: ImplementationPattern = None,
    tag: Tags = None,
    targets: TargetList = None,
    static: Annotated[bool, typer.Option(help="Compile for the targets too.")] = True,
    device: Annotated[str | None, typer.Option(help="cpu or cuda; a GPU where there is one if left out.")] = None,
    threads: Annotated[int, typer.Option(min=1, help="Threads of torch on the CPU.")] = 1,
    blocks: Annotated[int, typer.Option(min=1, help="Blocks of samples on each side; 3 at least for a verdict.")] = 8,
    as_json: AsJson = False,
) -> None:
    """Measure two revisions against each other in one job, their blocks interleaved. Exit status as for compare."""
    import tempfile
    from contextlib import ExitStack

    from ci.gate import exit_code
    from ci.pull_request import judge_pull_request
    from collector.nursery import Nursery
    from collector.revision import suite_at_revision
    from collector.run import measure_pair
    from collector.whole_file import check_writable
    from roofwatch.arguments import run_plan, suite_at
    from roofwatch.terminal import print_json, print_note, progress

    plan = run_plan(
        kernels=kernel,
        implementations=implementation,
        tags=tag,
        targets=targets if static else "",
        device=device,
        threads=threads,
        blocks=blocks,
    )
    check_writable(output / "record.json")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="roofwatch-ab-")))
        on_progress = stack.enter_context(progress("base against head"))
        suites = [
            suite_at(path, None)
            if revision is None
            else stack.enter_context(suite_at_revision(path, revision, folder / side))
            for side, revision in (("base", base), ("head", head))
        ]
        nursery = stack.enter_context(Nursery())
        records = measure_pair(suites[0], suites[1], plan, nursery=nursery, on_progress=on_progress)
    files = [
        output / f"{side}-{record.commit.sha[:12]}.json" for side, record in zip(("base", "head"), records, strict=True)
    ]
    for file, record in zip(files, records, strict=True):
        record.write(file)
    judged = judge_pull_request(*records)
    if as_json:
        print_json({"records": [str(file) for file in files], "judgement": judged, "exit_code": exit_code(judged)})
    else:
        _print_judgement(judged)
        print_note(f"records: {files[0]} {files[1]}")
    raise typer.Exit(exit_code(judged))


@app.command()
def static(
    path: SuitePath = None,
    *,
    targets: TargetList = None,
    kernel: KernelPattern = None,
    implementation: ImplementationPattern = None,
    tag: Tags = None,
    as_json: AsJson = False,
) -> None:
    """Compile every Triton kernel for GPUs that need not be there; print registers, spills and shared memory."""
    from collector.record import Outcome
    from collector.static_lane import compile_suite
    from roofwatch import tables
    from roofwatch.arguments import run_plan, suite_source
    from roofwatch.terminal import print_json, print_table, progress

    plan = run_plan(
        # a compiler has no trouble with the sizes that a GPU works on
        kernels=kernel,
        implementations=implementation,
        tags=tag,
        usual_tag="quick",
        targets=targets,
        device="cpu",
    )
    with progress("static") as on_progress:
        facts = compile_suite(suite_source(path), plan, on_progress)
    if as_json:
        print_json({"static_facts": [fact.model_dump(mode="json") for fact in facts]})
    else:
        print_table(tables.static_facts(facts))
    if any(fact.outcome is not Outcome.OK for fact in facts):
        raise typer.Exit(EXIT_CANNOT)


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
def compare(base: RecordFile, head: RecordFile, *, as_json: AsJson = False) -> None:
    """Compare two records: base, then head. Exit status 1 means a regression, 2 that it cannot be told."""
    from ci.gate import exit_code
    from ci.pull_request import judge_pull_request
    from collector.record import RunRecord
    from roofwatch.terminal import print_json

    judgement = judge_pull_request(RunRecord.read(base), RunRecord.read(head))
    if as_json:
        print_json({"judgement": judgement, "exit_code": exit_code(judgement)})
    else:
        _print_judgement(judgement)
    raise typer.Exit(exit_code(judgement))


@app.command()
def report(base: RecordFile, head: RecordFile, *, output: Output = None) -> None:
    """Write the pull-request comment for two records as Markdown. Exit status as for compare."""
    from ci.gate import exit_code
    from ci.pull_request import judge_pull_request
    from ci.report import to_markdown
    from collector.record import RunRecord
    from roofwatch.terminal import print_note, write_text

    judgement = judge_pull_request(RunRecord.read(base), RunRecord.read(head))
    if output is None:
        print(to_markdown(judgement), end="")
    else:
        write_text(output, to_markdown(judgement))
        print_note(f"written: {output}")
    raise typer.Exit(exit_code(judgement))


@app.command()
def dashboard(
    port: Annotated[int | None, typer.Option(help="Port; a free one if left out.")] = None,
    address: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
) -> None:
    """Serve the dashboard until Ctrl-C."""
    from dashboard.serve import serve
    from roofwatch.arguments import configured_url, open_configured_store
    from roofwatch.settings import load_settings
    from roofwatch.terminal import print_note

    with open_configured_store():  # a database that cannot be used is said here, not in a browser
        serve(
            port=port,
            address=address,
            data_dir=load_settings().data_dir,
            database_url=configured_url(),
            on_ready=lambda served: print_note(f"dashboard: {served}   (Ctrl-C ends it)"),
        )


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


@app.command()
def demo(
    folder: Annotated[Path, typer.Option("--dir", help="Everything the demo makes lies in here.")] = Path(
        "roofwatch-demo"
    ),
    serve: Annotated[bool, typer.Option(help="Serve the dashboard at the end.")] = True,
    port: Annotated[int | None, typer.Option(help="Port of the dashboard; a free one if left out.")] = None,
) -> None:
    """Measure sixteen commits of a small repository for real, and find those that changed something."""
    from roofwatch.demo.run import run_demo

    raise typer.Exit(run_demo(folder, serve=serve, port=port))


@db_app.command("upgrade")
def db_upgrade() -> None:
    """Bring the schema of the database up to date."""
    from db.migrate import head_revision, upgrade
    from db.session import open_server
    from roofwatch.arguments import configured_url, open_configured_store
    from roofwatch.terminal import print_note

    # the embedded database is brought up to date whenever it is opened
    url = configured_url()
    with open_configured_store() if url is None else open_server(url) as engine:
        upgrade(engine)
    print_note(f"the schema is at revision {head_revision()}")


@db_app.command("status")
def db_status(*, as_json: AsJson = False) -> None:
    """Show where the database is, its schema, and what it holds."""
    from db.status import read_status
    from roofwatch import tables
    from roofwatch.arguments import open_configured_store
    from roofwatch.terminal import print_json, print_table

    with open_configured_store() as engine:
        status = read_status(engine)
    if as_json:
        print_json(status)
    else:
        print_table(tables.status(status))


def _print_judgement(judged: PullRequestJudgement) -> None:
    from roofwatch import tables
    from roofwatch.terminal import print_note, print_table

    for table in tables.judgement(judged):
        print_table(table)
    print_note(tables.verdict_line(judged))
