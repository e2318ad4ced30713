"""A small stored project: six commits, two kernels and their regressions; and one in which every
text is hostile.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Engine

from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.regressions.judgements import replace_regressions
from roofwatch.db.regressions.triage import regression_id
from roofwatch.model.history import Cause, Regression, RegressionState, SeriesKey, Suspect
from roofwatch.model.machine import Outcome
from roofwatch.model.measurement import CaseRecord, Measurement
from roofwatch.model.proofs import OperatorCost, OverflowProof, Proof
from roofwatch.model.record import RunRecord
from roofwatch.model.triage import TriageState
from roofwatch.model.verdict import Verdict
from tests.builders import (
    PROJECT,
    make_accuracy,
    make_case,
    make_change_point,
    make_commit,
    make_environment,
    make_measurement,
    make_record,
    make_regression,
    make_series_key,
    make_static_facts,
)
from tests.dashboard.values import HOSTILE
from tests.databases import set_triage

HOSTILE_PROJECT = "hostile/project"
COMMIT_COUNT = 6
SLOWER_AT, SPILLS_AT, BROKEN_AT, FASTER_AT, NOISE_AT = 2, 3, 4, 5, 1
RMS_NORM = "rms_norm/n_rows=64,n_cols=128/float32/fwd"
RMS_NORM_BWD = "rms_norm/n_rows=64,n_cols=128/float32/bwd"
MATMUL = "matmul/M=128,N=128,K=128/float32/fwd"
TARGETS = ("sm_80", "sm_90", "sm_100", "sm_120", "gfx942", "gfx950")
_COST: Mapping[str, tuple[float, float]] = {
    RMS_NORM: (40_000.0, 65_536.0),
    RMS_NORM_BWD: (90_000.0, 131_072.0),
    MATMUL: (4_194_304.0, 196_608.0),
}


def store_history(engine: Engine, *, project: str = PROJECT) -> list[Regression]:
    """Ingest the runs of the project and store its regressions, which are returned."""
    for number in range(COMMIT_COUNT):
        ingest_record(engine, _record(number, project))
    judged = _judged(project)
    replace_regressions(engine, project, judged)
    return judged


def _record(number: int, project: str) -> RunRecord:
    measurements = _measurements(number)
    return make_record(
        number,
        project=project,
        measurements=measurements,
        accuracies=[
            make_accuracy(
                one.case_id,
                implementation=one.implementation,
                outcome=Outcome.INCORRECT if one.outcome is Outcome.INCORRECT else Outcome.OK,
                rmse_ratio=3e-2 if one.outcome is Outcome.INCORRECT else 1e-7,
            )
            for one in measurements
        ],
        static_facts=[
            make_static_facts(
                MATMUL,
                function="_matmul_kernel",
                target=target,
                code=f"{target} {number >= SPILLS_AT}",
                registers=255 if number >= SPILLS_AT else 64,
                local_bytes=96 if number >= SPILLS_AT else 0,
            )
            for target in TARGETS
        ],
        overflow_proofs=[
            OverflowProof(case_id=MATMUL, implementation="triton", proof=Proof.FITS, access_count=3)
        ],
        operator_costs=[
            OperatorCost(
                case_id=MATMUL,
                implementation="triton",
                target="sm_90",
                calls={"clone": 1},
                read_bytes=2**30,
                launch_count=1,
            )
        ],
        cases=tuple(_case(case_id) for case_id in _COST),
    )


def _case(case_id: str) -> CaseRecord:
    flop_count, memory_bytes = _COST[case_id]
    return make_case(case_id, flop_count=flop_count, memory_bytes=memory_bytes)


def _measurements(number: int) -> list[Measurement]:
    eager_ns = 14_200.0 if number >= SLOWER_AT else 10_000.0
    matmul_ns = 210_000.0 if number >= FASTER_AT else 300_000.0
    backward = Outcome.INCORRECT if number >= BROKEN_AT else Outcome.OK
    return [
        make_measurement(RMS_NORM, implementation="torch", median_ns=eager_ns + 10 * number),
        make_measurement(RMS_NORM, implementation="compile", median_ns=8_000.0 - 10 * number),
        make_measurement(
            RMS_NORM_BWD, implementation="torch", median_ns=30_000.0, outcome=backward
        ),
        make_measurement(MATMUL, implementation="torch", median_ns=matmul_ns, bound="compute"),
        make_measurement(MATMUL, implementation="triton", outcome=Outcome.UNSUPPORTED),
    ]


def _key(project: str, case_id: str, metric: str = "median_ns", **fields: str) -> SeriesKey:
    return make_series_key(metric, project=project, case_id=case_id, **fields)


def _judged(project: str) -> list[Regression]:
    spills = [
        make_change_point(
            SPILLS_AT,
            series=_key(
                project,
                MATMUL,
                "local_bytes",
                implementation="triton",
                function="_matmul_kernel",
                target=target,
                runner_class="",
            ),
            before=0.0,
            after=96.0,
            evidence="0 B to 96 B per thread",
        )
        for target in TARGETS
    ]
    slower = make_change_point(SLOWER_AT, series=_key(project, RMS_NORM), after=14_200.0)
    broken = make_change_point(
        BROKEN_AT, series=_key(project, RMS_NORM_BWD), before=30_000.0, after=None
    )
    noise = make_change_point(
        NOISE_AT, series=_key(project, MATMUL), before=300_000.0, after=330_000.0
    )
    faster = make_change_point(
        FASTER_AT,
        series=_key(project, MATMUL),
        verdict=Verdict.IMPROVED,
        before=300_000.0,
        after=210_000.0,
    )
    return [
        make_regression(
            SLOWER_AT,
            project=project,
            summary="rms_norm became 42 % slower on 1 series",
            change_points=(slower,),
            is_confirmed=True,
            suspects=(
                Suspect(Cause.CODE, 0.9, "the machine code differs on 1 of 1 targets"),
                Suspect(Cause.UNKNOWN, 0.1, "nothing else on record changed"),
            ),
        ),
        make_regression(
            SPILLS_AT,
            project=project,
            kernel="matmul",
            summary="matmul keeps 96 bytes per thread in local memory on 6 targets",
            change_points=tuple(spills),
            is_confirmed=True,
        ),
        make_regression(
            BROKEN_AT,
            project=project,
            summary="rms_norm is incorrect on 1 series",
            change_points=(broken,),
        ),
        make_regression(
            FASTER_AT,
            project=project,
            kernel="matmul",
            verdict=Verdict.IMPROVED,
            summary="matmul became 30 % faster on 1 series",
            change_points=(faster,),
        ),
        make_regression(
            NOISE_AT,
            project=project,
            kernel="matmul",
            summary="matmul became 10 % slower on 1 series",
            change_points=(noise,),
            state=RegressionState.DISMISSED,
        ),
    ]


def store_hostile_project(engine: Engine) -> None:
    """Ingest two runs in which every text is an attack, and store a regression with them."""
    case_id = f"{HOSTILE.replace('/', '')}/n=1/float32/fwd"
    for number in range(2):
        record = make_record(
            number,
            project=HOSTILE_PROJECT,
            commit=make_commit(number, author=HOSTILE, subject=HOSTILE),
            environment=make_environment(device_name=HOSTILE, os=f"{HOSTILE} {number}"),
            measurements=[
                make_measurement(case_id, implementation=HOSTILE),
                make_measurement(
                    case_id, implementation="failed", outcome=Outcome.CRASHED, message=HOSTILE
                ),
            ],
            static_facts=[make_static_facts(case_id, function=HOSTILE, target=HOSTILE)],
            cases=(make_case(case_id, family=HOSTILE),),
            spent_ns={HOSTILE: 1_000_000},
        )
        ingest_record(engine, record)
    series = _key(
        HOSTILE_PROJECT,
        case_id,
        implementation=HOSTILE,
        runner_class=make_environment(device_name=HOSTILE).runner_class,
    )
    regression = make_regression(
        1,
        project=HOSTILE_PROJECT,
        kernel=HOSTILE,
        summary=HOSTILE,
        change_points=(make_change_point(1, series=series, evidence=HOSTILE),),
        suspects=(Suspect(Cause.CODE, 1.0, HOSTILE),),
        family=HOSTILE,
    )
    replace_regressions(engine, HOSTILE_PROJECT, [regression])
    set_triage(
        engine,
        HOSTILE_PROJECT,
        regression_id(regression),
        TriageState.ACKNOWLEDGED,
        person=HOSTILE,
        reason=HOSTILE,
        actor=HOSTILE,
    )
