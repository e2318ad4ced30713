"""Read record files, and find what failed in them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path

from roofwatch.ci.ab.comparable import refuse_runner
from roofwatch.ci.ab.prediction import shares_of
from roofwatch.console.terminal import print_error
from roofwatch.model.errors import NotARecordError, RecordError
from roofwatch.model.machine import Outcome
from roofwatch.model.measurement import Autotuning, Measurement
from roofwatch.model.record import RunRecord
from roofwatch.model.stored_results import StepShare
from roofwatch.model.worker_protocol import Subject

RECORD_SUFFIX = ".json.gz"
"""Default suffix of record files."""

RECORD_FOLDER = "roofwatch-records"
"""Default folder of record files."""
WORKLOADS_NAME = f"roofwatch-workloads{RECORD_SUFFIX}"
_NO_REASON = "no reason was given"
_RECORD_PATTERNS = ("*.json", "*.json.gz")


def read_record_files(
    paths: Sequence[Path], *, report_skipped: Callable[[str], None] = print_error
) -> Iterator[tuple[Path, RunRecord]]:
    """Read record files and folders of them, ordered by commit, then by time; each record with its
    file.

    All files are checked before the first record is yielded. They are read twice, because a history
    may not fit in memory. What is something else, such as the state of a bisection, is reported and
    skipped.

    Raises:
        RecordError: a record is damaged, or there is none.
    """
    # Only the order is kept in memory, not the records.
    record_files: list[tuple[int, datetime, Path]] = []
    for file in _files_in(paths):
        try:
            record = RunRecord.read(file)
        except NotARecordError as error:
            report_skipped(f"skipped: {error}")
        else:
            record_files.append((record.commit.first_parent_count, record.started_at, file))
    if paths and not record_files:
        raise RecordError(f"{', '.join(map(str, paths))}: contains no record")
    return ((file, RunRecord.read(file)) for _, _, file in sorted(record_files))


def choices_of_record(file: Path) -> dict[Subject, tuple[Autotuning, ...]]:
    """What Triton's autotuner chose in a record.

    Raises:
        RecordError: the record cannot be read, or has no such choice.
    """
    choices: dict[Subject, tuple[Autotuning, ...]] = {}
    for measured in RunRecord.read(file).measurements:
        if measured.autotuning:
            subject = Subject(measured.case_id, measured.implementation)
            choices[subject] = measured.autotuning
    if not choices:
        raise RecordError(
            f"{file}: has no choice of an autotuner; only kernels with @triton.autotune that a GPU "
            f"timed have one"
        )
    return choices


def _files_in(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        if path.is_dir():
            # a bisection keeps the records of each commit in a folder of its own
            yield from _matches(path.glob) or _matches(path.rglob)
        else:
            yield path


def _matches(glob: Callable[[str], Iterable[Path]]) -> list[Path]:
    files: list[Path] = []
    for pattern in _RECORD_PATTERNS:
        files.extend(glob(pattern))
    return sorted(files)


def failed_results(record: RunRecord) -> Iterator[str]:
    """Describe every failed result, one line each; unsupported is not failed."""
    for measurement in record.measurements:
        if measurement.outcome.is_failure:
            yield (
                f"{measurement.case_id} {measurement.implementation}: "
                f"{measurement.outcome}: {measurement.message or ''}"
            )
    for fact in record.static_facts:
        if fact.outcome.is_failure:
            yield (
                f"{fact.case_id} {fact.function} for {fact.target}: {fact.outcome}: "
                f"{fact.message or ''}"
            )


def nothing_done(records: Sequence[RunRecord]) -> str | None:
    """Explain why nothing was timed, or None if that is fine.

    It is fine if something was measured or failed, or if there was nothing to time: Triton code
    without a GPU is only checked and compiled.
    """
    untimed: list[Measurement] = []
    refused: list[Measurement] = []
    is_anything_done = False
    for record in records:
        outcomes = {measurement.outcome for measurement in record.measurements}
        # Something was timed, or failed, which other functions say.
        if outcomes - {Outcome.UNSUPPORTED}:
            return None
        correct = [accuracy for accuracy in record.accuracies if accuracy.outcome is Outcome.OK]
        is_compiled = any(facts.outcome is Outcome.OK for facts in record.static_facts)
        is_anything_done = is_anything_done or bool(correct) or is_compiled
        untimed += record.measurements
        on_device = {accuracy.case_key for accuracy in correct if accuracy.executor == "device"}
        # What ran on this device should have been timed.
        refused += [
            measurement for measurement in record.measurements if measurement.case_key in on_device
        ]
    if refused:
        return f"nothing could be timed: {refused[0].message or _NO_REASON}"
    if not untimed or is_anything_done:
        return None
    return f"nothing could be checked, compiled or timed: {untimed[0].message or _NO_REASON}"


def read_step_shares(file: Path | None, default: Path, head: RunRecord) -> list[StepShare]:
    """Read the shares of steps in a record of workloads; without `file` in the default one, if its
    runner is the same.

    Raises:
        RecordError: the record cannot be read or has no such shares, or `file` is of another runner
        class.
    """
    if file is None and not default.is_file():
        return []
    record = RunRecord.read(file or default)
    refusals = refuse_runner(record.environment.runner_class, head.environment.runner_class)
    if refusals:
        # The default file may be of another machine; a file that was named must fit.
        if file is None:
            return []
        raise RecordError(f"{file}: {refusals[0]}")
    shares = shares_of(record.imported)
    if not shares:
        raise RecordError(
            f"{file or default}: no workload is profiled; measure workloads with roofwatch run "
            f"--profile"
        )
    return shares
