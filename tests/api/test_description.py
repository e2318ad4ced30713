"""What OpenAPI shows of an answer and of a body is one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import jsonschema
import pytest
from sqlalchemy import create_engine

from roofwatch.api.app import create_app
from roofwatch.api.examples import COMPARISON, RECORD
from roofwatch.api.routes.comparison import _plain
from roofwatch.ci.report.pull_request import judge_pull_request
from roofwatch.collector.record.record import RunRecord
from tests.builders import make_pair_of_records

NO_DOCUMENT = {"get /metrics", "get /v1/runs/{run_id}/artefacts/{sha256}"}


@pytest.fixture(scope="module")
def description() -> dict[str, Any]:
    # nothing is asked of the database
    return create_app(create_engine("postgresql+psycopg://nobody@nowhere/nothing"), version="1").openapi()


def documents(description: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every body that is sent, and every JSON document that is answered in success: where, and what is said of it."""
    for path, operations in description["paths"].items():
        for method, operation in operations.items():
            where = f"{method} {path}"
            answers = {status: said for status, said in operation["responses"].items() if status.startswith("2")}
            for part, said in {"body": operation.get("requestBody", {}), **answers}.items():
                for media_type, media in said.get("content", {}).items():
                    if part == "body" or media_type == "application/json":
                        yield f"{where}: {part}", media


def schema_of(description: Mapping[str, Any], media: Mapping[str, Any]) -> dict[str, Any]:
    return {**media["schema"], "components": description["components"]}


def examples_of(description: Mapping[str, Any], media: Mapping[str, Any]) -> list[Any]:
    schema = media["schema"]
    if "$ref" in schema:
        schema = description["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
    return [media["example"]] if "example" in media else schema.get("examples", [])


def test_each_document_has_an_example_that_is_one(description: dict[str, Any]) -> None:
    found = dict(documents(description))

    assert NO_DOCUMENT.isdisjoint(asked := {where.split(":")[0] for where in found})
    assert asked | NO_DOCUMENT == {
        f"{method} {path}" for path, operations in description["paths"].items() for method in operations
    }
    assert [where for where, media in found.items() if not examples_of(description, media)] == []
    for media in found.values():
        check = jsonschema.Draft202012Validator(
            schema_of(description, media), format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER
        )
        for example in examples_of(description, media):
            check.validate(example)


def test_an_example_of_a_list_has_something_in_it(description: dict[str, Any]) -> None:
    pages = [example for _, media in documents(description) for example in examples_of(description, media)]

    assert all(page["items"] for page in pages if "items" in page)


def test_the_examples_whose_schema_says_little_are_what_they_say() -> None:
    RunRecord.model_validate(RECORD)
    judged = _plain_of(judge_pull_request(*make_pair_of_records(0, 1, head_median_ns=20_000.0, block_count=12)))
    shown = COMPARISON["judgement"]

    assert shown.keys() <= judged.keys()
    for part in ("base", "head", "thresholds"):
        assert shown[part].keys() <= judged[part].keys()
    for case in shown["cases"]:
        assert case.keys() == judged["cases"][0].keys()
        assert case["comparison"].keys() == judged["cases"][0]["comparison"].keys()


def _plain_of(judgement: Any) -> Any:
    import orjson

    return orjson.loads(orjson.dumps(judgement, default=_plain, option=orjson.OPT_NON_STR_KEYS))
