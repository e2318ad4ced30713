"""The first line of an answer: what, how much, and the next command."""

import shlex
from pathlib import Path

from roofwatch.ci.messages import count_of, listed
from roofwatch.measurement.explain_check import check_summary, failures_of, repeat_command
from roofwatch.measurement.proofs import kernels_at_powers_of_two
from roofwatch.model.case_key import kernel_of
from roofwatch.model.check_report import CheckedSuite
from roofwatch.model.machine import Outcome
from roofwatch.model.record import RunRecord
from roofwatch.tables.run import fastest_lines


def headline_of_check(target: str, suite: CheckedSuite, device: str | None) -> str:
    summary = check_summary(suite.reports)
    failures = failures_of(suite.reports)
    failed = [report for report in failures if not report.has_failed_reference]
    # a wrong kernel is the news, whatever else was found
    if failed:
        names = [f"{kernel_of(report.case_id)} {report.implementation}" for report in failed]
        repeat = repeat_command(target, failed[0], device)
        return f"wrong: {listed(dict.fromkeys(names))}; {summary}; next: {repeat}"
    # only the reference failed, so no kernel is to blame
    if failures:
        return f"cannot tell: {kernel_of(failures[0].case_id)}: {failures[0].message}; {summary}"
    defects = (report.interpreter_defect for report in suite.reports)
    defect = next(filter(None, defects), None)
    if defect is not None:
        return f"cannot tell: {defect}; {summary}"
    if any(report.outcome is Outcome.OK for report in suite.reports):
        # there, a missing mask does not show
        limited = kernels_at_powers_of_two(suite.reports)
        only = f" at sizes that are powers of two only: {listed(limited)}" if limited else ""
        return f"right{only}; {summary}; next: {shlex.join(['roofwatch', 'run', target])}"
    return f"no result could be checked: {summary.removeprefix('checked: ')}"


def headline_of_run(record: RunRecord, path: Path | None) -> str:
    """How many results were timed, and the case that is furthest from its limit."""
    suite_words = [] if path is None else [str(path)]
    failed = [result for result in record.measurements if result.outcome.is_failure]
    if failed:
        names = [f"{kernel_of(result.case_id)} {result.implementation}" for result in failed]
        words = ["roofwatch", "check", *(suite_words or [kernel_of(failed[0].case_id)])]
        return (
            f"failed: {listed(dict.fromkeys(names))}, {len(failed)} of "
            f"{count_of(len(record.measurements), 'result')}; next: {shlex.join(words)}"
        )
    timed_count = sum(result.outcome is Outcome.OK for result in record.measurements)
    counted = f"timed: {timed_count} of {count_of(len(record.measurements), 'result')}"
    # without a ceiling there is no limit to be far from
    fastest = fastest_lines(record)
    if not fastest:
        return counted
    words = ["roofwatch", "diagnose", kernel_of(fastest[0]), *suite_words]
    return f"{counted}; furthest from its limit: {fastest[0]}; next: {shlex.join(words)}"
