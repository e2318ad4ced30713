"""Series as OpenMetrics."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from sqlalchemy import Engine
from starlette.testclient import TestClient

from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.regressions.judgements import replace_regressions
from roofwatch.model.verdict import Verdict
from tests.api.conftest import UNLIMITED, MakeToken, headers_of, make_app
from tests.builders import (
    PROJECT,
    make_change_point,
    make_commit_ref,
    make_measurement,
    make_record,
    make_regression,
    make_series_key,
)

PATH = "/v1/series/metrics"


@pytest.fixture
def exporting(store: Engine, make_token: MakeToken) -> Iterator[TestClient]:
    with TestClient(
        make_app(store, UNLIMITED, exports_series=True), headers=headers_of(make_token())
    ) as client:
        yield client


def samples(client: TestClient, **query: str) -> dict[tuple[str, str], float]:
    """The value of each sample by its name and implementation, or state."""
    answer = client.get(PATH, params={"project": PROJECT, "days": "366"} | query)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    families = text_string_to_metric_families(answer.text)  # type: ignore[no-untyped-call]  # no types here
    return {
        (
            sample.name,
            sample.labels.get("roofwatch_series_verdict", sample.labels["implementation"]),
        ): sample.value
        for family in families
        for sample in family.samples
    }


def ingest_two_commits(store: Engine) -> None:
    """A commit of 10,000 ns, and a slower one that is a regression."""
    for number, median_ns in enumerate((10_000, 12_000)):
        ingest_record(
            store, make_record(number, measurements=[make_measurement(median_ns=median_ns)])
        )
    replace_regressions(store, PROJECT, [make_regression(1)])


def test_a_parser_reads_the_quartiles_around_the_newest_value(
    store: Engine, exporting: TestClient
) -> None:
    ingest_two_commits(store)

    parsed = samples(exporting)

    implementation = make_series_key().implementation
    low, value, high = (
        parsed[f"roofwatch_series_{name}", implementation] for name in ("low", "value", "high")
    )
    assert low <= value <= high
    assert value == pytest.approx(12_000, rel=0.01)


def test_a_parser_reads_the_verdict(store: Engine, exporting: TestClient) -> None:
    ingest_two_commits(store)

    parsed = samples(exporting)

    verdicts = {
        state: parsed["roofwatch_series_verdict", state]
        for state in ("regressed", "improved", "unchanged")
    }
    assert verdicts == {"regressed": 1, "improved": 0, "unchanged": 0}


def test_another_kernel_has_no_samples(store: Engine, exporting: TestClient) -> None:
    ingest_two_commits(store)

    assert samples(exporting, kernel="another") == {}


def test_the_newest_change_counts_unless_the_old_level_is_back(
    store: Engine, exporting: TestClient
) -> None:
    for number in range(4):
        ingest_record(store, make_record(number))
    older = make_regression(1)
    newer = replace(older, commit=make_commit_ref(2), verdict=Verdict.IMPROVED)
    newer = replace(newer, change_points=(make_change_point(2, verdict=Verdict.IMPROVED),))

    replace_regressions(store, PROJECT, [older, newer])
    assert samples(exporting)["roofwatch_series_verdict", "improved"] == 1

    replace_regressions(store, PROJECT, [replace(older, recovered_at=make_commit_ref(3))])
    assert samples(exporting)["roofwatch_series_verdict", "unchanged"] == 1


def test_names_cannot_forge_a_sample(store: Engine, exporting: TestClient) -> None:
    ingest_record(
        store, make_record(measurements=[make_measurement(implementation='x"} 1\nforged 2\\')])
    )

    assert {name for name, _ in samples(exporting)} == {
        "roofwatch_series_value",
        "roofwatch_series_low",
        "roofwatch_series_high",
        "roofwatch_series_verdict",
    }


def test_it_is_off_by_default(client: TestClient) -> None:
    off = client.get(PATH, params={"project": PROJECT})

    assert off.status_code == 404
    assert "--series-metrics" in off.json()["detail"]


def test_it_answers_for_the_projects_of_the_token_alone(
    exporting: TestClient, make_token: MakeToken
) -> None:
    query = {"project": PROJECT}

    other = exporting.get(
        PATH, params=query, headers=headers_of(make_token(project="another/project"))
    )
    nobody = exporting.get(PATH, params=query, headers={"Authorization": ""})

    assert (other.status_code, nobody.status_code) == (403, 401)
