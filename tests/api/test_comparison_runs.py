"""`GET /v1/comparison` and `/v1/comparison/runs`."""

from typing import Any

import pytest
from sqlalchemy import Engine
from starlette.testclient import TestClient

from roofwatch.db.ingest.ingest import ingest_record
from tests.builders import PROJECT, make_commit, make_environment, make_pair_of_records, make_record, sha_of
from tests.ci.values import make_noisy_calibration

SHA_A = "beef" + "a" * 36
SHA_B = "beef" + "b" * 36


@pytest.fixture
def chosen(client: TestClient) -> Any:
    def choose(base: str, head: str, **query: str) -> Any:
        parameters = {"project": PROJECT, "base": base, "head": head, **query}
        return client.get("/v1/comparison/runs", params=parameters)

    return choose


def test_sides_are_commits_abbreviations_or_runs(client: TestClient, store: Engine, chosen: Any) -> None:
    pair = make_pair_of_records(0, 1)
    alone, aside = make_record(1), make_record(2)
    for record in (alone, *pair):
        ingest_record(store, record)
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


def test_stored_noise_floor_is_applied_unless_disabled(client: TestClient, store: Engine, chosen: Any) -> None:
    pair = make_pair_of_records(0, 1, head_median_ns=12_000.0, block_count=12)
    aside = make_record(1)
    for record in pair:
        ingest_record(store, record)
    ingest_record(store, aside, is_quarantined=True)
    query = {"project": PROJECT, "base": sha_of(0), "head": sha_of(1)}

    def judge(**more: str) -> Any:
        return client.get("/v1/comparison", params=query | more).json()

    assert (judge()["exit_code"], judge()["judgement"]["noise_floor"]) == (1, None)
    for record in make_noisy_calibration():
        ingest_record(store, record)
    with_floor = judge()
    floor = chosen(sha_of(0), sha_of(1), noise_floor="true").json()["noise_floor"]
    assert (with_floor["exit_code"], with_floor["judgement"]["noise_floor"]["case_count"]) == (0, 1)
    assert floor["commit_sha"] == with_floor["judgement"]["noise_floor"]["commit_sha"] == sha_of(0)
    assert (judge(noise_floor="false")["exit_code"], chosen(sha_of(0), sha_of(1)).json()["noise_floor"]) == (1, None)
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
