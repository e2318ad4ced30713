"""Commands that compare two revisions, or a commit with itself, in one job."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from roofwatch.commands.options import (
    AsJson,
    Like,
    NoiseFloorFile,
    RecordFolder,
    ReferenceFunction,
    Resume,
    RunOptions,
    SuiteFrom,
    SuitePath,
    shared_options,
)
from roofwatch.commands.queueable import queueable
from roofwatch.console.terminal import (
    EXIT_CANNOT,
    json_text,
    print_error,
    print_result,
    progress,
    write_text,
)

app = typer.Typer()

_Budget = Annotated[
    float,
    typer.Option(min=0.0, help="Seconds for more blocks, where more would decide an open verdict."),
]
_RECORDS = Path("roofwatch-records")
_FEWEST_BLOCKS = 3
_WAITING_BUDGET_S = 20.0
"""While a person waits: with the first blocks of a small suite, less than a minute."""
_BUDGET_S = 120.0
"""Halving the interval takes four times the blocks, so more than two minutes would rarely decide
more.
"""


@app.command()
@queueable
@shared_options()
def ab(
    path: Annotated[
        Path,
        typer.Argument(
            help="Benchmark file or folder in a git repository, such as bench_softmax.py."
        ),
    ],
    *,
    base: Annotated[
        str, typer.Option(help="Base revision; auto is where the branch left its target branch.")
    ] = "auto",
    head: Annotated[str | None, typer.Option(help="Head revision. Default: the work tree.")] = None,
    output: RecordFolder = _RECORDS,
    options: RunOptions,
    budget: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            help="Seconds for more blocks of open verdicts. Default: 20, with CI=true 120.",
        ),
    ] = None,
    stop_after: Annotated[
        float | None,
        typer.Option(
            min=0.0, help="Minutes after which nothing more is timed; for jobs with a limit."
        ),
    ] = None,
    like: Like = None,
    reference: ReferenceFunction = None,
    affected: Annotated[
        bool, typer.Option("--affected", help="Only kernels that the change can affect.")
    ] = False,
    suite_from: SuiteFrom = "head",
    pin_autotune: Annotated[
        bool,
        typer.Option("--pin-autotune", help="Use what the base's autotuner chooses on both sides."),
    ] = False,
    noise_floor: NoiseFloorFile = None,
    resume: Resume = False,
    as_json: AsJson = False,
) -> None:
    """Compare two revisions in one job with interleaved blocks. Exit status as for compare.

    Undecided cases get more blocks until they are decided or the budget is spent. Flagged cases are
    measured again.
    """
    import os
    import time

    started_s = time.monotonic()

    def is_over() -> bool:
        return stop_after is not None and time.monotonic() - started_s >= stop_after * 60

    from roofwatch.configuration.settings import load_settings
    from roofwatch.measurement.revisions import (
        find_base,
        has_same_source,
        note_not_measured,
        noting_failure,
        only_affected,
        open_pair,
    )
    from roofwatch.model.timing_method import Preset
    from roofwatch.proposals.function_benchmark import benchmark_of
    from roofwatch.reporting.report_files import read_baseline, read_noise_floor
    from roofwatch.static.static_gate import baseline_file

    path = Path(benchmark_of(str(path), like, reference))
    accepted = read_baseline(baseline_file(path))
    floor = read_noise_floor(noise_floor, Preset(options.preset))
    policy = load_settings(path.parent).check.policy

    def stop_without_measuring(reason: str) -> None:
        note_not_measured(path, head, output)
        nothing: dict[str, object] = {
            "summary": reason,
            "records": [],
            "judgement": None,
            "exit_code": 0,
        }
        print_result(nothing, as_json=as_json)

    # before anything that takes longer is loaded
    with noting_failure(path, head, output):
        revision = find_base(
            path=path,
            base=base,
            head=head,
            variables=os.environ,
        )
        if has_same_source(path, revision, head):
            print_error(
                f"nothing to measure: {head or 'the work tree'} has the same source as {revision}; "
                "change a kernel, or measure the noise of this machine: roofwatch calibrate"
            )
            stop_without_measuring("nothing to measure: both sides have the same source")
            return

    from roofwatch.collector.workers.fork_server import ForkServer

    fork_server = ForkServer()
    fork_server.start()
    # it loads torch while this process loads the rest
    from roofwatch.ci.report.comment import verdict_line
    from roofwatch.ci.report.pull_request import PullRequestJudgement, judge_pull_request
    from roofwatch.measurement.run import FIRST_BLOCKS, measure_revisions, needs_more
    from roofwatch.model.record import RunRecord
    from roofwatch.tables.comparison import (
        changed_sizes,
        claim_counts,
        judgement_tables,
        next_steps,
        remark_lines,
    )
    from roofwatch.tables.record_sentences import device_summary

    def judge(base: RunRecord, head: RunRecord) -> PullRequestJudgement:
        return judge_pull_request(base, head, baseline=accepted, noise_floor=floor, policy=policy)

    plan = options.plan(fewest_blocks=FIRST_BLOCKS, pins_autotuner=pin_autotune)
    if budget is None:
        budget = _BUDGET_S if os.environ.get("CI") else _WAITING_BUDGET_S
    uses_head = suite_from == "head"
    with (
        fork_server,
        noting_failure(path, head, output),
        open_pair(path, revision, head, fork_server, uses_head=uses_head) as (old, new),
    ):
        skipped: tuple[str, ...] = ()
        if affected:
            restricted = only_affected(
                path=path,
                base=revision,
                head=head,
                plan=plan,
                patterns=options.kernel,
            )
            if restricted is None:
                stop_without_measuring("nothing to measure: the change affects no selected kernel")
                return
            plan, skipped = restricted
        measured = measure_revisions(
            old,
            new,
            plan,
            fork_server=fork_server,
            judge=judge,
            helps=needs_more,
            budget_s=budget,
            output=output,
            title="base against head",
            skipped=skipped,
            is_resumed=resume,
            is_over=is_over,
        )
    files = [str(file) for file, _ in measured]
    records = [record for _, record in measured]
    judged = judge(*records)
    print_result(
        {
            "records": files,
            "summary": verdict_line(judged),
            "changed": changed_sizes(judged),
            "claims": claim_counts(judged),
            "judgement": judged,
            "exit_code": judged.exit_code,
        },
        verdict_line(judged),
        *judgement_tables(judged),
        *remark_lines(judged),
        *next_steps(judged),
        *device_summary(*records),
        f"records: {' '.join(files)}",
        as_json=as_json,
    )
    raise typer.Exit(judged.exit_code)


@app.command()
@shared_options(
    "kernel",
    "implementation",
    "tag",
    "device",
    "threads",
    "timer",
    "cache",
    "lock_clocks",
    "device_check",
    "preset",
    "timeout",
    "blocks",
)
def calibrate(
    path: SuitePath = None,
    *,
    output: RecordFolder = _RECORDS,
    options: RunOptions,
    budget: _Budget = _BUDGET_S,
    resume: Resume = False,
    as_json: AsJson = False,
) -> None:
    """Measure a commit against itself (A/A run): how noisy is this runner, and which changes can it
    detect?

    Writes two records and noise_floor.json, for --noise-floor of ab and compare. Exit status 2:
    nothing was timed.
    """
    from roofwatch.ci.report.pull_request import judge_pull_request
    from roofwatch.collector.workers.fork_server import ForkServer
    from roofwatch.configuration.arguments import suite_at
    from roofwatch.measurement.run import (
        FIRST_BLOCKS,
        is_noise_floor_unknown,
        measure_revisions,
        noise_floor,
        noise_floor_summary,
    )
    from roofwatch.model.timing_method import Preset
    from roofwatch.tables.comparison import noise_floor_table

    # the deviation of few blocks is a guess
    if options.blocks is not None and options.blocks < _FEWEST_BLOCKS:
        raise typer.BadParameter(
            f"a noise floor needs at least {_FEWEST_BLOCKS} blocks", param_hint="--blocks"
        )
    plan = replace(options, targets="").plan(fewest_blocks=FIRST_BLOCKS)
    suite = suite_at(path, None)
    with ForkServer() as fork_server:
        measured = measure_revisions(
            suite,
            suite,
            plan,
            fork_server=fork_server,
            judge=judge_pull_request,
            helps=is_noise_floor_unknown,
            budget_s=budget,
            output=output,
            title="commit against itself",
            is_resumed=resume,
        )
    (base_file, base), (head_file, head) = measured
    noise = noise_floor(base, head, preset=Preset(options.preset))
    file = output / "noise_floor.json"
    write_text(file, json_text(noise))
    records = f"records: {base_file} {head_file}   floor: {file}"
    print_result(
        noise, noise_floor_table(noise), *noise_floor_summary(noise), records, as_json=as_json
    )
    # without a timed case there is no floor to keep
    if not noise.cases:
        raise typer.Exit(EXIT_CANNOT)


@app.command()
@queueable
def submit(
    candidate: Annotated[
        Path, typer.Argument(metavar="CANDIDATE.py", help="File that defines the candidate.")
    ],
    *,
    spec: Annotated[
        Path,
        typer.Option(
            metavar="SPEC.py",
            help="Benchmark file in a git repository, such as bench_softmax.py.",
        ),
    ],
    rev: Annotated[str, typer.Option(help="Revision that the spec is taken from.")] = "HEAD",
    kernel: Annotated[
        str | None, typer.Option("--kernel", "-k", help="Kernel of the spec, if it has several.")
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(help="Implementation to be faster than. Default: the fastest that runs here."),
    ] = None,
    entry: Annotated[
        str, typer.Option(help="Callable of the candidate, with the reference's arguments.")
    ] = "candidate",
    case: Annotated[
        list[str] | None,
        typer.Option(
            "--case", "-c", help="Only cases whose id matches; repeatable. Default: as for run."
        ),
    ] = None,
    budget: Annotated[float, typer.Option(min=5.0, help="Seconds for everything.")] = 50.0,
    require_isolation: Annotated[
        bool,
        typer.Option(
            "--require-isolation", help="Refuse if this machine lacks a layer of the sandbox."
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Judge a candidate kernel that runs in a sandbox: is it right, and faster than the spec's
    implementation?

    Exit status 0: faster. 1: not faster, incorrect or invalid. 2: not decided.
    """
    from roofwatch.collector.runs.run_plan import Progress
    from roofwatch.measurement.submissions import Request
    from roofwatch.measurement.submit import submit
    from roofwatch.tables.submissions import submission_lines

    cases = tuple(case) if case else None
    request = Request(
        candidate=candidate,
        spec=spec,
        revision=rev,
        kernel=kernel,
        against=against,
        entry=entry,
        cases=cases,
        budget_s=budget,
        must_be_isolated=require_isolation,
    )
    with progress(candidate.name) as on_progress:
        result = submit(request, lambda text: on_progress(Progress(0, 0, text)))
    print_result(vars(result), *submission_lines(result), as_json=as_json)
    raise typer.Exit(result.verdict.exit_status)


@app.command()
def submissions(
    *,
    kernel: Annotated[
        str | None, typer.Option("--kernel", "-k", help="Only of this kernel.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List all submissions with their verdicts, newest first."""
    from roofwatch.measurement.submissions import entries
    from roofwatch.tables.submissions import submission_table

    chosen = [entry for entry in entries() if kernel in {None, entry["kernel"]}][::-1]
    print_result({"submissions": chosen}, submission_table(chosen), as_json=as_json)
