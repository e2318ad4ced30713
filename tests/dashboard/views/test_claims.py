"""What is claimed about a case is the same in every output, for the same records."""

from __future__ import annotations

import json
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree

import pytest
from sqlalchemy import Engine
from starlette.testclient import TestClient

from roofwatch.ci.forges.check_run import Conclusion
from roofwatch.ci.report.comment import to_markdown, verdict_line
from roofwatch.ci.report.interchange import to_junit, to_sarif
from roofwatch.ci.report.pull_request import PullRequestJudgement, judge_pull_request
from roofwatch.ci.report.titles import headline
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.model.claim import ClaimKind
from roofwatch.model.machine import Outcome
from roofwatch.model.record import RunRecord
from roofwatch.model.verdict import Verdict
from roofwatch.pull_requests.posting import report_on
from roofwatch.tables.comparison import judgement_tables
from tests.api.conftest import UNLIMITED, headers_of, make_app, new_token
from tests.builders import (
    PROJECT,
    make_accuracy,
    make_measurement,
    make_static_facts,
    sha_of,
)
from tests.ci.values import LOUD, QUIET, SWIGLU, make_records, make_timed
from tests.dashboard.conftest import OpenView
from tests.dashboard.seen import markup
from tests.roofwatch.command import roofwatch

SHAPE = "n_rows=64,n_cols=128/float32/fwd"
KINDS = {
    "slower": (ClaimKind.TIMED, "slower"),
    "same_time": (ClaimKind.TIMED, "time unchanged"),
    "noisy": (ClaimKind.TIMED_UNDECIDED, "undecided: too noisy"),
    "changed_code": (ClaimKind.COMPILED_ONLY, "time not measured (no GPU); code changed"),
    "changed_host": (ClaimKind.CHECKED_ONLY, "time not measured (no GPU); code changed"),
    "same_code": (ClaimKind.COMPILED_ONLY, "time not measured (no GPU); same code"),
    "wrong": (ClaimKind.CHECKED_ONLY, "wrong result"),
    "removed": (ClaimKind.NOT_MEASURED, "removed benchmark"),
}
"""By kernel: what may be claimed of a pair."""


def case_of(kernel: str) -> str:
    return f"{kernel}/{SHAPE}"


def untimed(kernel: str) -> Any:
    message = "Triton code does not run on a CPU: checked in the interpreter and compiled"
    return make_measurement(case_of(kernel), outcome=Outcome.UNSUPPORTED, message=message)


def records(*, is_paired: bool) -> tuple[RunRecord, RunRecord]:
    def static(kernel: str, code: str) -> Any:
        return make_static_facts(case_of(kernel), implementation="torch", code=code)

    checked = [make_accuracy(case_of(kernel)) for kernel in KINDS if kernel != "wrong"]
    untimed_cases = [untimed(kernel) for kernel in ("changed_code", "changed_host", "same_code")]
    base = [
        make_timed(case_of("slower")),
        make_timed(case_of("same_time")),
        make_timed(case_of("noisy")),
        make_timed(case_of("removed")),
        *untimed_cases,
        static("changed_code", "a"),
        static("same_code", "a"),
        make_accuracy(case_of("wrong")),
        make_timed(case_of("wrong")),
        *checked,
    ]
    head = [
        make_timed(case_of("slower"), median_ns=1.4e6, levels=QUIET[::-1]),
        make_timed(case_of("same_time"), levels=QUIET[::-1]),
        make_timed(case_of("noisy"), levels=LOUD),
        *untimed_cases,
        static("changed_code", "b"),
        static("same_code", "a"),
        make_accuracy(case_of("wrong"), outcome=Outcome.INCORRECT),
        make_measurement(case_of("wrong"), outcome=Outcome.INCORRECT),
        *[one for one in checked if one.case_id != case_of("removed")],
    ]
    digests = dict.fromkeys(KINDS, "a")
    return make_records(
        base,
        head,
        is_paired=is_paired,
        base_fields={"source_digests": digests},
        head_fields={"source_digests": digests | {"changed_host": "b"}},
    )


def claims_shown(html: str) -> dict[str, str]:
    """What a comparison says of each case, without what it adds about its machine code."""
    shown: dict[str, str] = {}
    for row in html.split("rw-compared rw-case")[1:]:
        case = unquote(row.partition("case=")[2].partition("&amp;")[0])
        said = row.partition('rw-soft" title="')[2].partition('"')[0]
        shown[case] = unescape(said).partition("; machine code")[0]
    return shown


def claims_of(judgement: PullRequestJudgement) -> dict[str, str]:
    return {case.case_id: case.evidence.claimed.text for case in judgement.cases}


def test_each_kind_of_evidence_has_its_claim() -> None:
    judgement = judge_pull_request(*records(is_paired=True))

    claims = {case.case_id.partition("/")[0]: case.evidence.claimed for case in judgement.cases}
    assert {kernel: (one.kind, one.text) for kernel, one in claims.items()} == KINDS


@pytest.mark.parametrize("is_paired", [True, False])
def test_every_output_shows_the_same_claims(
    is_paired: bool, tmp_path: Path, open_view: OpenView, store: Engine
) -> None:
    base, head = records(is_paired=is_paired)
    judgement = judge_pull_request(base, head)
    claims = claims_of(judgement)
    undecided = {
        case.case_id: case.evidence.claimed.text
        for case in judgement.cases
        if case.verdict is Verdict.INCONCLUSIVE
    }
    files = [tmp_path / "base-a.json.gz", tmp_path / "head-b.json.gz"]
    for path, record in zip(files, (base, head), strict=True):
        record.write(path)
        ingest_record(store, record)

    # terminal and JSON
    compared = roofwatch("compare", *files, "--json", cwd=tmp_path)
    parsed = {
        case["subject"]["case_id"]: case["evidence"]["claim"]["text"]
        for case in compared.parsed["judgement"]["cases"]
    }
    assert parsed == claims
    assert sum(compared.parsed["claims"].values()) == len(claims)
    assert compared.parsed["summary"] == verdict_line(judgement)
    cells: list[str] = []
    for changes in judgement_tables(judgement):
        for column in changes.columns:
            cells += map(str, column.cells)
    for text in undecided.values():
        assert any(cell.startswith(text) for cell in cells), text

    # comment and check
    report = report_on(files, None)
    assert report.comment is not None
    assert str(headline(judgement)) in report.check.title
    for text in undecided.values():
        assert text in report.comment
    assert "not measured (no GPU)" in report.check.title

    # JUnit and SARIF
    root = ElementTree.fromstring(to_junit(judgement).encode())  # noqa: S314  our own
    for case in root.findall("./testsuite[1]/testcase"):
        said = "".join(case.itertext()) + "".join(str(child.get("message")) for child in case)
        assert claims[str(case.get("classname"))] in said
    (run,) = json.loads(to_sarif(judgement, version="1"))["runs"]
    notes = [
        note["message"]["text"] for note in run["invocations"][0]["toolExecutionNotifications"]
    ]
    assert sorted(notes) == sorted(f"{case} torch: {text}" for case, text in undecided.items())

    # API, from the stored records
    headers = headers_of(new_token(store))
    with TestClient(make_app(store, UNLIMITED), headers=headers) as client:
        answer = client.get(
            "/v1/comparison",
            params={"project": PROJECT, "base": sha_of(0), "head": sha_of(1)},
        ).json()
    stored = {
        case["subject"]["case_id"]: case["evidence"]["claim"]["text"]
        for case in answer["judgement"]["cases"]
    }
    assert stored == claims

    # dashboard
    assert claims_shown(markup(open_view("compare"))) == claims


# --- what was green before


def test_changed_machine_code_without_a_time_is_undecided() -> None:
    # a Triton kernel on a hosted runner, made to load its second operand 64 times more
    def side(code: str) -> list[Any]:
        facts = make_static_facts(case_of("load"), implementation="torch", code=code)
        return [untimed("load"), make_accuracy(case_of("load")), facts]

    judgement = judge_pull_request(*make_records(side("a"), side("b")))

    assert judgement.exit_code == 2
    title = "accuracy ok; code of 1 function changed; time of 1 kernel not measured (no GPU)"
    assert str(headline(judgement)) == title


def test_a_changed_launcher_without_a_time_is_undecided(tmp_path: Path) -> None:
    # an extra .clone() on the host: the machine code is identical
    def side() -> list[Any]:
        facts = make_static_facts(case_of("add"), implementation="torch")
        return [untimed("add"), make_accuracy(case_of("add")), facts]

    base, head = make_records(
        side(),
        side(),
        base_fields={"source_digests": {"add": "a"}},
        head_fields={"source_digests": {"add": "b"}},
    )
    judgement = judge_pull_request(base, head)
    unknown = judge_pull_request(base, head.model_copy(update={"source_digests": {}}))
    same = judge_pull_request(base, head.model_copy(update={"source_digests": {"add": "a"}}))

    assert str(headline(judgement)) == (
        "accuracy ok; sources of 1 kernel changed; time of 1 kernel not measured (no GPU)"
    )
    assert [one.exit_code for one in (judgement, unknown, same)] == [2, 2, 0]
    title = "accuracy ok; same code in 1 benchmark, time not measured (no GPU)"
    assert str(headline(same)) == title
    files = [tmp_path / "base.json", tmp_path / "head.json"]
    for path, record in zip(files, (base, head), strict=True):
        record.write(path)
    report = report_on(files, None)
    assert report.check.conclusion is Conclusion.NEUTRAL
    assert f"`/roofwatch run {sha_of(1)[:8]}`" in str(report.comment)


def test_two_runs_of_the_same_code_give_no_verdict_on_time(
    open_view: OpenView, store: Engine
) -> None:
    base, head = make_records(
        [make_timed(SWIGLU)], [make_timed(SWIGLU, median_ns=1.215e6)], is_paired=False
    )
    for record in (base, head):
        ingest_record(store, record)

    html = markup(open_view("compare"))

    assert list(claims_shown(html).values()) == ["undecided: separate runs"]
    assert "+21.5%" in html
    # the comment has the same words
    assert "| undecided: separate runs |" in to_markdown(judge_pull_request(base, head))
