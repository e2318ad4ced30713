"""Time a submitted candidate beside the implementation, in blocks."""

import secrets
import statistics
from collections.abc import Sequence
from dataclasses import asdict

from roofwatch.ci.ab.compare import FIRST_LOOK_BLOCKS, looks_after
from roofwatch.ci.ab.submission import (
    CaseTimes,
    SubmissionVerdict,
    TimeVerdict,
    judge_times,
)
from roofwatch.collector.accuracy.trial import Bench
from roofwatch.collector.accuracy.variations import Trial
from roofwatch.collector.device.ceilings import measure_ceilings
from roofwatch.collector.device.roofline import INVALID_ABOVE, roof_of
from roofwatch.collector.jobs.kernel_info import case_record
from roofwatch.measurement.load import BUSY_LOAD, load_per_processor
from roofwatch.measurement.submitted import Rejected, Submission
from roofwatch.model.timing_method import default_method
from roofwatch.spec import Case

SCREEN_UNTIL = 0.7
CONFIRM_UNTIL = 0.85
"""Shares of the budget."""
UNDECIDED = frozenset({SubmissionVerdict.INCONCLUSIVE, SubmissionVerdict.UNCONFIRMED})
"""Verdicts that more time, or an idle machine, may decide."""
_ROUNDS = 3
"""Pairs of pairs of calls of a case in a block."""


def measure_blocks(
    submission: Submission,
    bench: Bench,
    trials: Sequence[Trial],
    rate: float,
    until: float,
) -> tuple[TimeVerdict, list[list[CaseTimes]]]:
    """Add blocks up to the next interim analysis until the verdict is clear or the time is up."""
    submission.result.cases = [trial.case.id for trial in trials]
    for trial in trials:  # a warm-up
        bench.check(bench.time_once(trial, is_base_first=True))
    blocks: list[list[CaseTimes]] = []
    next_look = FIRST_LOOK_BLOCKS
    while True:
        while len(blocks) < next_look and (
            len(blocks) < FIRST_LOOK_BLOCKS or submission.left_s(until) > 0
        ):
            if submission.left_s(CONFIRM_UNTIL) <= 0:
                raise submission.out_of_budget()
            blocks.append(_block(bench, trials))
        judged = judge_times(blocks, rate=rate)
        submission.result.effect = asdict(judged.effect)
        # on a busy machine an exchange takes longer, and more blocks may see it shorter
        goes_on = judged.verdict is SubmissionVerdict.INCONCLUSIVE or (
            judged.verdict in UNDECIDED and load_per_processor() > BUSY_LOAD
        )
        if not goes_on or submission.left_s(until) <= 0:
            return judged, blocks
        next_look = next(looks_after(len(blocks)))


def _block(bench: Bench, trials: Sequence[Trial]) -> list[CaseTimes]:
    """Call both sides in turn on each case, and return the medians by case."""
    random = secrets.SystemRandom()
    pairs = [
        bench.time_once(trial, is_base_first=is_base_first)
        for trial in random.sample(trials, len(trials))
        for is_base_first in random.sample((True, False) * _ROUNDS, 2 * _ROUNDS)
    ]
    # chosen when all outputs have arrived
    bench.check(random.choice(pairs))
    times = []
    for trial in trials:
        of_case = [pair for pair in pairs if pair.case == trial.case]
        times.append(
            CaseTimes(
                statistics.median(pair.base.elapsed_ns for pair in of_case),
                statistics.median(pair.candidate.elapsed_ns for pair in of_case),
                statistics.median(bench.exchange_ns(pair) for pair in of_case),
            )
        )
    return times


def place_under_roof(submission: Submission, case: Case, median_ns: float) -> None:
    """Add the candidate's position under the roof.

    Raises:
        Rejected: it is faster than the hardware allows.
    """
    timer = default_method(submission.device).timer
    ceilings = list(measure_ceilings(submission.device, [case.dtype], timer))
    roof = roof_of(case_record(submission.spec, case), ceilings)
    if roof.ideal_ns is None:
        return
    excess = roof.least_ns / median_ns
    shares = {
        "bound": roof.bound,
        "ideal_ns": roof.ideal_ns,
        "utilisation": roof.ideal_ns / median_ns,
    }
    submission.result.roofline = {
        "case": case.id,
        "median_ns": median_ns,
        **shares,
        "excess": excess,
    }
    device_kind = "cpu" if submission.device == "cpu" else "cuda"
    if excess > INVALID_ABOVE[device_kind]:
        reason = (
            f"takes {median_ns / 1e3:.0f} us, {excess:.1f} times as fast as the hardware allows"
        )
        raise Rejected(
            SubmissionVerdict.INVALID, reason, [submission.evidence("roofline", case.id, reason)]
        )
