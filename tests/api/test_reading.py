"""Routes that read runs, series, regressions, metrics and comparisons."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session
from starlette.testclient import TestClient

from roofwatch.api.worker import analyse_waiting
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.maintenance.retention import Part, prune
from roofwatch.db.queries.series import read_series
from roofwatch.db.queries.series_keys import list_series_keys
from roofwatch.db.regressions.judgements import list_triaged, replace_regressions
from roofwatch.db.regressions.triage import regression_id
from tests.api.conftest import UNLIMITED, MakeToken, headers_of, make_app
from tests.builders import (
    PROJECT,
    make_change_point,
    make_commit,
    make_commit_ref,
    make_environment,
    make_measurement,
    make_pair_of_records,
    make_record,
    make_regression,
    make_static_facts,
    sha_of,
)
from tests.ci.values import make_noisy_calibration
from tests.databases import ingest_all


def pages(client: TestClient, path: str, **query: Any) -> list[list[Any]]:
    """All pages of a list."""
    found = []
    cursor = None
    while True:
        answer = client.get(
            path, params={**query, **({} if cursor is None else {"cursor": cursor})}
        )
        assert answer.status_code == 200, answer.text
        found.append(answer.json()["items"])
        cursor = answer.json()["next"]
        if cursor is None:
            return found


def flat(found: list[list[Any]]) -> list[Any]:
    return [item for page in found for item in page]


def test_runs_are_paged_newest_first(client: TestClient, store: Engine) -> None:
    records = [make_record(number // 2) for number in range(7)]  # two at a time started at once
    ingest_all(store, *records)
    first = client.get("/v1/runs", params={"project": PROJECT, "limit": 3}).json()
    ingest_record(store, make_record(99))
    rest = pages(client, "/v1/runs", project=PROJECT, limit=3, cursor=first["next"])[0]
    following = client.get(
        "/v1/runs", params={"project": PROJECT, "limit": 3, "cursor": first["next"]}
    ).json()
    last = client.get(
        "/v1/runs", params={"project": PROJECT, "limit": 3, "cursor": following["next"]}
    ).json()

    listed = [run["run_id"] for run in (*first["items"], *rest, *last["items"])]

    assert listed == [
        str(one.run_id)
        for one in sorted(records, key=lambda one: (-one.started_at.timestamp(), one.run_id.int))
    ]
    assert last["next"] is None


DEEP = base64.urlsafe_b64encode(b"[" * 1_000 + b"]" * 1_000).decode()


def test_invalid_cursor_is_refused(client: TestClient) -> None:
    for path in ("/v1/runs", "/v1/series", "/v1/regressions", "/v1/audit", "/v1/projects"):
        for cursor in ("x", "W10=", "bnVsbA==", "WyJcdTAwMDAiXQ==", DEEP):
            answer = client.get(path, params={"project": PROJECT, "cursor": cursor})
            # a cursor of projects is any name
            assert answer.status_code == 400 or (
                path == "/v1/projects" and answer.status_code == 200
            ), (path, cursor)


def test_run_status_after_an_analysis(client: TestClient, store: Engine) -> None:
    record = make_record()
    client.post("/v1/records", content=record.to_json())
    path = f"/v1/runs/{record.run_id}/status"
    before = client.get(path).json()

    assert analyse_waiting(store) == [PROJECT]

    assert (before["is_judged"], client.get(path).json()["is_judged"]) == (False, True)
    assert before["content_hash"] == record.content_hash


def test_series_are_paged(client: TestClient, store: Engine) -> None:
    for number in range(3):
        ingest_record(
            store,
            make_record(
                number, measurements=[make_measurement()], static_facts=[make_static_facts()]
            ),
        )
    with Session(store) as session:
        keys = list_series_keys(session, PROJECT)
        series = read_series(session, PROJECT)

    listed = flat(pages(client, "/v1/series", project=PROJECT, limit=3))
    read = flat(pages(client, "/v1/series/points", project=PROJECT, limit=3))

    assert len(keys) > 3
    assert [tuple(item.values()) for item in listed] == [
        (
            key.project,
            key.case_id,
            key.implementation,
            key.metric,
            key.runner_class,
            key.function,
            key.target,
            key.tensor,
        )
        for key in keys
    ]
    assert [[point["value"] for point in one["points"]] for one in read] == [
        [point.value for point in one.points] for one in series
    ]


def test_points_of_a_page_are_limited(store: Engine, make_token: MakeToken) -> None:
    records = [make_record(number, measurements=[make_measurement()]) for number in range(3)]
    ingest_all(store, *records)
    client = TestClient(
        make_app(store, replace(UNLIMITED, points=7)), headers=headers_of(make_token())
    )
    narrow = TestClient(
        make_app(store, replace(UNLIMITED, points=2)), headers=headers_of(make_token())
    )
    path, query = "/v1/series/points", {"project": PROJECT}
    times = [record.started_at.isoformat() for record in records]

    found = pages(client, path, **query)
    whole = flat(pages(client, path, **query, limit=1))

    assert max(sum(len(one["points"]) for one in page) for page in found) <= 7
    assert len(found) > 1
    assert flat(found) == whole
    assert [len(page) for page in pages(narrow, path, **query)] == [1] * len(whole)
    within = flat(pages(narrow, path, **query, since=times[1], until=times[2]))
    assert [[point["measured_at"] for point in one["points"]] for one in within] == [
        [point["measured_at"] for point in one["points"][1:2]] for one in whole
    ]
    assert narrow.get(path, params=query | {"since": "2026-03-01T12:00:00"}).status_code == 422


@pytest.fixture
def judged(store: Engine) -> Engine:
    ingest_all(store, *map(make_record, range(4)))
    replace_regressions(store, PROJECT, [make_regression(number) for number in (1, 2, 3)])
    return store


def decide(client: TestClient, number: int, **decision: str) -> Any:
    path = f"/v1/regressions/{regression_id(make_regression(number))}/triage"
    usual = {
        "decision": "expected",
        "person": "Example Engineer",
        "reason": "the price of an exact sum",
    }
    return client.post(path, params={"project": PROJECT}, json=usual | decision)


def test_a_regression_has_the_range_of_commits_that_may_have_caused_it(
    client: TestClient, store: Engine
) -> None:
    ingest_all(store, make_record(1), make_record(5))
    point = make_change_point(5, previous_commit=make_commit_ref(1))
    replace_regressions(store, PROJECT, [make_regression(5, change_points=(point,))])

    (found,) = flat(pages(client, "/v1/regressions", project=PROJECT))

    assert found["regression"]["commit_count"] == 4
    assert found["regression"]["base"]["sha"] == make_commit_ref(1).sha


def test_regressions_are_paged_newest_first(client: TestClient, judged: Engine) -> None:
    found = flat(pages(client, "/v1/regressions", project=PROJECT, limit=2))

    assert [one["regression"]["commit"]["sha"] for one in found] == [
        sha_of(number) for number in (3, 2, 1)
    ]
    assert {one["triage"]["state"] for one in found} == {"new"}
    assert flat(pages(client, "/v1/regressions", project=PROJECT, state="dismissed")) == []


def test_triage_refuses_a_stale_state(client: TestClient, judged: Engine) -> None:
    assert decide(client, 2).json()["triage"]["state"] == "expected"

    stale = decide(client, 2, decision="not-real", expected="new")

    assert (stale.status_code, "expected, not new" in stale.json()["detail"]) == (409, True)


def decide_fixed(client: TestClient) -> None:
    """Call a regression expected, then fixed."""
    decide(client, 2)
    decided = decide(client, 2, decision="fixed", reason="reverted", expected="expected")
    assert decided.status_code == 200


def test_triage_survives_an_analysis(client: TestClient, judged: Engine) -> None:
    decide_fixed(client)

    replace_regressions(
        judged, PROJECT, [make_regression(number, summary="analysed again") for number in (2, 3)]
    )

    (fixed,) = flat(pages(client, "/v1/regressions", project=PROJECT, triage="fixed"))
    assert (fixed["regression"]["summary"], fixed["triage"]["reason"]) == (
        "analysed again",
        "reverted",
    )


def test_triage_is_audited(client: TestClient, judged: Engine) -> None:
    decide_fixed(client)

    (fixed,) = flat(pages(client, "/v1/regressions", project=PROJECT, triage="fixed"))
    trail = flat(
        pages(client, "/v1/audit", project=PROJECT, subject=fixed["regression_id"], limit=1)
    )
    assert [(entry["before"], entry["after"], entry["reason"]) for entry in trail] == [
        ("expected", "fixed", "reverted"),
        ("new", "expected", "the price of an exact sum"),
    ]
    assert all(
        entry["person"] == "Example Engineer" and entry["actor"].startswith("token ")
        for entry in trail
    )
    assert all("recorded_at" in entry for entry in trail)


def assign_note_snooze(client: TestClient) -> Any:
    """Decide three things about a regression, and return it."""
    decide(client, 2, decision="assign", value="wen@example.com", reason="")
    decide(client, 2, decision="issue", value="https://example.com/issues/7", reason="")
    return decide(client, 2, decision="snooze", value="7d", reason="").json()


def test_decisions_of_several_kinds_hold_together(client: TestClient, judged: Engine) -> None:
    snoozed = assign_note_snooze(client)

    noted = snoozed["triage"]
    assert (noted["assignee"], noted["issue_url"], snoozed["is_snoozed"]) == (
        "wen@example.com",
        "https://example.com/issues/7",
        True,
    )


def test_undo_takes_back_the_last_decision_alone(client: TestClient, judged: Engine) -> None:
    assign_note_snooze(client)

    undone = decide(client, 2, decision="undo", reason="").json()

    assert (undone["is_snoozed"], undone["triage"]["assignee"]) == (False, "wen@example.com")


@pytest.mark.parametrize(
    "decision",
    [
        {"decision": "gone"},
        {"decision": "issue", "value": "javascript:alert(1)"},
        {"decision": "snooze", "value": "soon"},
        {"decision": "undo"},
        {"person": ""},
        {"person": "a\nb"},
        {"reason": " "},
        {"reason": "x" * 2_001},
        {"more": "x"},
    ],
)
def test_invalid_triage_is_refused(
    client: TestClient, judged: Engine, decision: Mapping[str, str]
) -> None:
    assert decide(client, 2, **decision).status_code == 422
    with Session(judged) as session:
        assert len(list_triaged(session, PROJECT)) == 3


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_health_needs_no_token(client: TestClient, path: str) -> None:
    assert client.get(path, headers={"Authorization": ""}).json() == {"status": "ok"}


def test_metrics_count_requests_without_names_of_clients(client: TestClient) -> None:
    client.post("/v1/records", content=make_record().to_json())
    client.get("/no/such/page?project=secret")

    text = client.get("/metrics").text

    assert 'roofwatch_requests_total{method="POST",route="/v1/records",status="201"} 1.0' in text
    assert 'roofwatch_records_total{kind="new"} 1.0' in text
    assert 'route="unknown",status="404"' in text
    assert PROJECT not in text
    assert "secret" not in text


def test_errors_point_to_the_openapi_document(client: TestClient) -> None:
    for answer in (client.get("/v1/nothing"), client.delete("/v1/runs"), client.get("/v1/runs")):
        assert answer.headers["content-type"] == "application/problem+json"
        assert "/v1/openapi.json" in answer.json()["detail"]
        assert answer.json()["status"] == answer.status_code


def test_record_without_samples_is_gone(client: TestClient, store: Engine) -> None:
    record = make_record(1)
    ingest_all(store, record, make_record(2))
    then = record.started_at + timedelta(days=60)
    prune(store, {Part.SAMPLES: 30}, now=then, is_dry_run=False, actor="a test")

    answer = client.get(f"/v1/runs/{record.run_id}/record")

    assert answer.status_code == 410
    assert answer.json()["type"] == "urn:roofwatch:problem:gone"
    assert "its samples are no longer kept" in answer.json()["detail"]
    assert client.get(f"/v1/runs/{record.run_id}").status_code == 200


SHA_A = "beef" + "a" * 36
SHA_B = "beef" + "b" * 36


@pytest.fixture
def chosen(client: TestClient) -> Any:
    def choose(base: str, head: str, **query: str) -> Any:
        parameters = {"project": PROJECT, "base": base, "head": head, **query}
        return client.get("/v1/comparison/runs", params=parameters)

    return choose


def test_sides_can_be_named_in_every_way(client: TestClient, store: Engine, chosen: Any) -> None:
    pair = make_pair_of_records(0, 1)
    alone, aside = make_record(1), make_record(2)
    ingest_all(store, alone, *pair)
    ingest_record(store, aside, is_quarantined=True)
    ids = {"base_run_id": str(pair[0].run_id), "head_run_id": str(pair[1].run_id)}

    assert chosen(sha_of(0), sha_of(1)).json() == ids | {"noise_floor": None}
    assert chosen(sha_of(0)[:7], sha_of(1)[:4]).json() == ids | {"noise_floor": None}
    assert chosen(sha_of(0), str(aside.run_id)).json()["head_run_id"] == str(aside.run_id)
    assert chosen(sha_of(1), sha_of(1)).json()["base_run_id"] == str(alone.run_id)
    query = {"project": PROJECT, "base": sha_of(0)[:7], "head": sha_of(1)[:7]}
    judged = client.get("/v1/comparison", params=query).json()
    assert {name: judged[name] for name in ids} == ids
    assert judged["judgement"]["is_paired"] is True
    comment = client.get("/v1/comparison", params=query | {"format": "markdown"})
    assert "No change in 1 benchmark." in comment.text


def test_stored_noise_floor_is_applied_unless_disabled(
    client: TestClient, store: Engine, chosen: Any
) -> None:
    pair = make_pair_of_records(0, 1, head_median_ns=12_000.0, block_count=12)
    aside = make_record(1)
    ingest_all(store, *pair)
    ingest_record(store, aside, is_quarantined=True)
    query = {"project": PROJECT, "base": sha_of(0), "head": sha_of(1)}

    def judge(**more: str) -> Any:
        return client.get("/v1/comparison", params=query | more).json()

    assert (judge()["exit_code"], judge()["judgement"]["noise_floor"]) == (1, None)
    ingest_all(store, *make_noisy_calibration())
    with_floor = judge()
    floor = chosen(sha_of(0), sha_of(1), noise_floor="true").json()["noise_floor"]
    assert (with_floor["exit_code"], with_floor["judgement"]["noise_floor"]["case_count"]) == (0, 1)
    assert floor["commit_sha"] == with_floor["judgement"]["noise_floor"]["commit_sha"] == sha_of(0)
    assert (
        judge(noise_floor="false")["exit_code"],
        chosen(sha_of(0), sha_of(1)).json()["noise_floor"],
    ) == (1, None)
    assert judge(head=str(aside.run_id))["judgement"]["noise_floor"]["commit_sha"] == sha_of(0)


def test_unknown_side_is_refused_with_the_reason(store: Engine, chosen: Any) -> None:
    for number, sha in enumerate((SHA_A, SHA_B)):
        ingest_record(store, make_record(commit=make_commit(number, sha=sha, parents=())))
    elsewhere = make_record(3, project="other/project")
    ingest_record(store, elsewhere)
    here = make_environment().runner_class

    assert chosen(SHA_A, "beefb").status_code == 200
    for side, query, reason in (
        ("beef", {}, f"beef: ambiguous in project {PROJECT} ({SHA_A[:16]}, {SHA_B[:16]})"),
        ("0000", {}, f"0000: project {PROJECT} has no run of it"),
        (str(elsewhere.run_id), {}, f"{elsewhere.run_id}: project {PROJECT} has no run of it"),
        (SHA_B, {"runner_class": f"not {here}"}, f"has no run of it on not {here}"),
    ):
        refused = chosen(SHA_A, side, **query)
        assert refused.status_code == 404
        assert reason in refused.json()["detail"]
    for side in ("bee", "main", "BEEF", "beef" * 17):
        assert chosen(SHA_A, side).status_code == 422
