"""Commands that compare two revisions, or a commit with itself, in one job."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from roofwatch.options import (
    EXIT_CANNOT,
    AsJson,
    BaselineFile,
    Discard,
    NoiseFloorFile,
    RecordFolder,
    Resume,
    RunOptions,
    SuitePath,
    run_options,
)
from roofwatch.terminal import json_text, print_json, print_note, print_table, write_text

# Commands import what they need, to keep `roofwatch --help` quick.
app = typer.Typer()

_Budget = Annotated[
    float, typer.Option(min=0.0, help="Seconds for more blocks, where more would decide an open verdict.")
]
_RECORDS = Path("roofwatch-records")
_FEWEST_BLOCKS = 3
_BUDGET_S = 120.0
"""Halving the interval takes four times the blocks, so more than two minutes would rarely decide more."""


@app.command()
@run_options()
def ab(
    path: Annotated[Path, typer.Argument(help="Benchmark file or folder in a git repository.", show_default=False)],
    *,
    base: Annotated[str, typer.Option(help="Base revision.")],
    head: Annotated[str | None, typer.Option(help="Head revision. Default: the work tree.")] = None,
    output: RecordFolder = _RECORDS,
    options: RunOptions,
    budget: _Budget = _BUDGET_S,
    affected: Annotated[bool, typer.Option("--affected", help="Only kernels that the change can affect.")] = False,
    noise_floor: NoiseFloorFile = None,
    baseline: BaselineFile = None,
    resume: Resume = False,
    discard: Discard = False,
    as_json: AsJson = False,
) -> None:
    """Compare two revisions in one job with interleaved blocks. Exit status as for compare.

    Undecided cases get more blocks until they are decided or the budget is spent. Flagged cases are measured again.
    """
    from roofwatch.ci.report.pull_request import PullRequestJudgement, judge_pull_request
    from roofwatch.ci.verdicts import exit_code
    from roofwatch.collector.record.record import RunRecord
    from roofwatch.collector.timing.method import Preset
    from roofwatch.comparison_tables import print_judgement
    from roofwatch.measurement.affected import only_affected
    from roofwatch.measurement.pair import FIRST_BLOCKS, PairPlan, measure_revisions, needs_more, read_noise_floor
    from roofwatch.measurement.run_tables import device_summary
    from roofwatch.static_gate import baseline_file, read_baseline

    accepted = read_baseline(baseline, baseline_file(path))
    floor = read_noise_floor(noise_floor, Preset(options.preset))

    def judge(base: RunRecord, head: RunRecord) -> PullRequestJudgement:
        return judge_pull_request(base, head, baseline=accepted, noise_floor=floor)

    plan = options.plan(fewest_blocks=FIRST_BLOCKS)
    plan, skipped = only_affected(path, base, head, plan, options.kernel) if affected else (plan, ())
    asked = PairPlan(
        path,
        (base, head),
        plan,
        needs_more,
        budget,
        output,
        is_resumed=resume,
        is_discarded=discard,
        skipped=skipped,
    )
    measured = measure_revisions(asked, judge, title="base against head")
    judged = judge(*measured.records)
    if as_json:
        files = [str(file) for file in measured.files]
        print_json({"records": files, "judgement": judged, "exit_code": exit_code(judged.verdict)})
    else:
        print_judgement(judged)
        notes = device_summary(*measured.records)
        print_note("\n".join([*notes, f"records: {measured.files[0]} {measured.files[1]}"]))
    raise typer.Exit(exit_code(judged.verdict))


@app.command()
@run_options(
    *(
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
    ),
    *("launch_timeout", "preparation_timeout", "check_timeout", "blocks"),
)
def calibrate(
    path: SuitePath = None,
    *,
    output: RecordFolder = _RECORDS,
    options: RunOptions,
    budget: _Budget = _BUDGET_S,
    resume: Resume = False,
    discard: Discard = False,
    as_json: AsJson = False,
) -> None:
    """Measure a commit against itself (A/A run): how noisy is this runner, and which changes can it detect?

    Writes two records and noise_floor.json, for --noise-floor of ab and compare. Exit status 2: nothing was timed.
    """
    from roofwatch.ci.report.pull_request import judge_pull_request
    from roofwatch.ci.verdicts import Thresholds
    from roofwatch.collector.timing.method import Preset
    from roofwatch.comparison_tables import noise_floor_table
    from roofwatch.measurement.pair import (
        FIRST_BLOCKS,
        PairPlan,
        is_noise_floor_unknown,
        measure_revisions,
        noise_floor,
        noise_floor_summary,
    )

    if options.blocks is not None and options.blocks < _FEWEST_BLOCKS:
        raise typer.BadParameter(f"a noise floor needs at least {_FEWEST_BLOCKS} blocks", param_hint="--blocks")
    plan = replace(options, targets="").plan(fewest_blocks=FIRST_BLOCKS)
    asked = PairPlan(
        path, (None, None), plan, is_noise_floor_unknown, budget, output, is_resumed=resume, is_discarded=discard
    )
    measured = measure_revisions(asked, judge_pull_request, title="commit against itself")
    noise = noise_floor(*measured.records, Thresholds(), preset=Preset(options.preset))
    file = output / "noise_floor.json"
    write_text(file, json_text(noise))
    if as_json:
        print_json(noise)
    else:
        print_table(noise_floor_table(noise))
        print_note(
            "\n".join(
                [*noise_floor_summary(noise), f"records: {measured.files[0]} {measured.files[1]}   floor: {file}"]
            )
        )
    if not noise.cases:
        raise typer.Exit(EXIT_CANNOT)
