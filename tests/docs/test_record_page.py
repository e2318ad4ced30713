"""docs/record.md and docs/record.schema.json against the code that they describe."""

import inspect
import json

import pytest
from pydantic import BaseModel

from roofwatch.collector.record import machine, measurement, record, results
from roofwatch.collector.record.machine import Outcome, Part
from roofwatch.collector.record.metrics import METRICS
from roofwatch.collector.record.record import SCHEMA_VERSION, RunRecord, json_schema
from tests.docs.markdown import ROOT, table_under
from tests.roofwatch.command import roofwatch

PAGE = ROOT / "docs" / "record.md"
SCHEMA = ROOT / "docs" / "record.schema.json"
MODULES = (machine, measurement, record, results)
PARTS = [
    part
    for module in MODULES
    for part in vars(module).values()
    if inspect.isclass(part) and issubclass(part, Part) and part is not Part and part.__module__ == module.__name__
]


def test_the_published_schema_is_what_the_command_prints() -> None:
    assert roofwatch("schema").output == SCHEMA.read_text(), "run: roofwatch schema --output docs/record.schema.json"


def test_the_published_schema_is_that_of_the_code() -> None:
    assert json.loads(SCHEMA.read_text()) == json_schema()


def test_the_page_names_the_version() -> None:
    assert f"This roofwatch writes {SCHEMA_VERSION}." in PAGE.read_text()


def test_the_table_of_outcomes_is_whole() -> None:
    assert [row[0] for row in table_under(PAGE, "Outcomes")] == [str(outcome) for outcome in Outcome]


def test_the_table_of_metrics_is_the_code_s() -> None:
    assert table_under(PAGE, "Metrics") == [
        [row.key, row.title, row.unit, str(row.better), str(row.layer)] for row in METRICS.values()
    ]


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.__name__)
def test_every_field_is_described(part: type[BaseModel]) -> None:
    rows = table_under(PAGE, f"`{part.__name__}`")

    assert [row[0] for row in rows] == list(part.model_fields)
    assert all(meaning for _, meaning in rows)


def test_the_record_s_own_parts_are_all_there() -> None:
    assert RunRecord in PARTS
    assert set(json_schema()["$defs"]) <= {part.__name__ for part in PARTS} | {"Outcome", "Side", "Timer", "CacheState"}
