"""docs/diagnose.md against the code that it describes."""

from roofwatch.ci.diagnosis.diagnose import RULES
from roofwatch.ci.diagnosis.finding import Limit
from roofwatch.profiles.diagnosing import Diagnosed, to_json, told
from tests.ci.ailments import AILMENTS, diagnosed, evidence
from tests.docs.markdown import ROOT, fences, table_under

PAGE = ROOT / "docs" / "diagnose.md"


def example() -> Diagnosed:
    record = AILMENTS["host"]()
    return Diagnosed(evidence(record), diagnosed(record))


def test_every_rule_is_listed_with_its_source_in_the_order_of_telling() -> None:
    rows = table_under(PAGE, "Rules")
    assert [row[0] for row in rows] == [rule.__name__ for rule in RULES]
    assert all(sees and source for _, sees, source in rows)


def test_every_limit_is_listed() -> None:
    named = {limit.strip() for row in table_under(PAGE, "Limits") for limit in row[0].split(",")}
    assert named == {str(limit) for limit in Limit}


def test_the_example_is_what_the_command_prints() -> None:
    [text] = [fence.text for fence in fences(PAGE) if fence.language == "text"]
    assert text.splitlines() == list(told(example()))


def test_every_field_of_the_json_is_described() -> None:
    document = to_json([example()], "record.json")
    assert [row[0] for row in table_under(PAGE, "For machines")] == list(document)
    assert [row[0] for row in table_under(PAGE, "A diagnosis")] == list(document["diagnoses"][0])
