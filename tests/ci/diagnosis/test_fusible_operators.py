"""Operators of torch that one kernel could replace."""

import pytest

from roofwatch.ci.diagnosis.diagnose import collect_evidence, diagnose
from roofwatch.ci.diagnosis.finding import DiagnosisFinding
from roofwatch.model.results import ProfiledActivity
from tests.builders import make_case, make_measurement, make_profile, make_record

MATMUL = ProfiledActivity(kind="operator", name="aten::mm", device="cpu", count=5, total_ns=500)


def finding_for(operator_bytes: dict[str, int]) -> DiagnosisFinding | None:
    case = make_case(memory_bytes=1024)
    profile = make_profile(
        case.case_id,
        MATMUL,
        implementation="torch",
        operator_bytes=operator_bytes,
        elementwise_names=("add", "mul"),
    )
    record = make_record(
        cases=(case,),
        measurements=(make_measurement(case_id=case.case_id, implementation="torch"),),
        profiles=(profile,),
    )
    (evidence,) = collect_evidence(record, [(case.case_id, "torch")])
    for finding in diagnose(evidence).findings:
        if finding.rule == "fusible_operators":
            return finding
    return None


def test_operators_are_listed_with_their_bytes() -> None:
    finding = finding_for({"mm": 1024, "add": 3072, "mul": 2048})

    assert finding is not None
    assert finding.most_speedup == 6.0
    assert "3 operators move 6 KiB" in finding.text
    assert "add 3 KiB, mul 2 KiB, mm 1 KiB" in finding.text
    assert "Element by element: add, mul." in finding.text


@pytest.mark.parametrize(
    "operator_bytes", [{}, {"mm": 5000}, {"mm": 1000, "add": 400}], ids=["none", "one", "few bytes"]
)
def test_necessary_traffic_is_no_finding(operator_bytes: dict[str, int]) -> None:
    assert finding_for(operator_bytes) is None
