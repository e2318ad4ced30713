"""What the cases of a run add to its record."""

from collections.abc import Collection, Sequence
from typing import TypedDict

from roofwatch.collector.runs.case_run import CaseRun
from roofwatch.collector.workload_values import workload_values
from roofwatch.model.machine import Ceiling, Environment
from roofwatch.model.measurement import CaseRecord, Measurement, with_references
from roofwatch.model.proofs import OperatorCost, OverflowProof
from roofwatch.model.results import Accuracy, CaseProfile, ImportedValue, StaticFacts
from roofwatch.model.source_line import SourceLine
from roofwatch.model.timing_method import TimingMethod
from roofwatch.model.worker_protocol import Subject


class RecordedResults(TypedDict):
    """Fields of `RunRecord` with the same names."""

    cases: tuple[CaseRecord, ...]
    measurements: tuple[Measurement, ...]
    accuracies: tuple[Accuracy, ...]
    static_facts: tuple[StaticFacts, ...]
    overflow_proofs: tuple[OverflowProof, ...]
    operator_costs: tuple[OperatorCost, ...]
    profiles: tuple[CaseProfile, ...]
    imported: tuple[ImportedValue, ...]
    source_lines: tuple[SourceLine, ...]


def results_of(
    runs: Sequence[CaseRun],
    *,
    left_out: Collection[Subject],
    method: TimingMethod,
    ceilings: tuple[Ceiling, ...],
    environment: Environment,
) -> RecordedResults:
    """Collect the results of cases, in their order.

    Args:
        runs: Cases, one for each implementation.
        left_out: Subjects without a measurement, because the run was not asked to time them.
        method: Method of the blocks that were timed.
        ceilings: Measured bandwidth and FLOP/s of the device.
        environment: Machine that the measurements were made on.
    """
    # Implementations share their case.
    cases = tuple({run.case.case_id: run.case for run in runs}.values())
    measurements = with_references(
        run.measurement(method, ceilings, environment)
        for run in runs
        if run.subject not in left_out
    )
    profiles = tuple(run.profile for run in runs if run.profile is not None)
    proofs = [run.proof for run in runs if run.proof is not None]
    # Implementations of one file share lines; a dict keeps the first of each, in order.
    source_lines = (line for run in runs for line in run.implementation.source_lines)
    step_values = workload_values(
        cases=cases,
        measurements=measurements,
        profiles=profiles,
        ceilings=ceilings,
    )
    return {
        "cases": cases,
        "measurements": measurements,
        "accuracies": tuple(run.accuracy for run in runs if run.accuracy is not None),
        "static_facts": tuple(fact for run in runs for fact in run.static_facts),
        "overflow_proofs": tuple(proof.overflow for proof in proofs),
        "operator_costs": tuple(proof.cost for proof in proofs if proof.cost is not None),
        "profiles": profiles,
        "imported": tuple(step_values),
        "source_lines": tuple(dict.fromkeys(source_lines)),
    }
