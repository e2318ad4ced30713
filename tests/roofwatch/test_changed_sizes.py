"""What changed, in the JSON of `ab` and `compare`."""

from roofwatch.ci.report.pull_request import judge_pull_request
from roofwatch.model.machine import Outcome
from roofwatch.tables.comparison import changed_sizes
from tests.builders import CASE_ID, make_measurement, make_record


def test_a_case_that_works_again_is_listed_in_words() -> None:
    base = make_record(measurements=[make_measurement(outcome=Outcome.CRASHED, message="stop")])
    head = make_record(measurements=[make_measurement()])

    (changed,) = changed_sizes(judge_pull_request(base, head))

    assert (changed["case_id"], changed["verdict"]) == (CASE_ID, "improved")
    assert changed["words"] == "works again"
    assert changed["relative_interval"] is None
