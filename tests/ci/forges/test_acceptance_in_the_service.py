"""The service learns from the reporting job what was accepted."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from roofwatch.ci.forges.commands import TellService, carry_out
from roofwatch.ci.forges.event import ActionsRun, Job, PullRequest, RunOrder
from roofwatch.ci.messages import ForgeError
from roofwatch.db.access import list_entries
from roofwatch.db.regressions.acceptances import list_acceptances
from roofwatch.model.acceptance import PullRequestAcceptance
from roofwatch.model.history import Scope
from roofwatch.pull_requests.job_services import open_service
from roofwatch.pull_requests.posting import Posted, post, report_on
from tests.api.conftest import served, token_of_today
from tests.builders import PROJECT
from tests.ci.forges.stand_in import REPOSITORY, GitHubStandIn
from tests.ci.forges.test_commands import HEAD, NUMBER, PREFIX, URL, post_report, request
from tests.ci.situations import SITUATIONS, write_records


@pytest.fixture
def github(github: GitHubStandIn) -> GitHubStandIn:
    github.pull_requests = [
        {"number": NUMBER, "head": {"label": "o:b", "sha": HEAD}, "base": {"ref": "main"}}
    ]
    github.permissions = {"maintainer": "write", "owner": "admin", "reader": "read"}
    return github


def post_again(github: GitHubStandIn, folder: Path, tell_service: TellService | None) -> Posted:
    job = Job(
        ActionsRun(github.url, REPOSITORY, RunOrder(11, 1), URL),
        HEAD,
        pull_requests=(PullRequest(NUMBER),),
    )
    report = report_on(write_records(folder, SITUATIONS["regression"]()), job)
    return post(
        github.repository(),
        job,
        {"": report},
        "roofwatch",
        with_comment=True,
        with_check=True,
        tell_service=tell_service,
    )


def refuse(_project: str, _acceptance: PullRequestAcceptance) -> None:
    raise ForgeError("HTTP 403: no")


def test_an_acceptance_stays_in_the_service_after_its_comment(
    github: GitHubStandIn, tmp_path: Path, store: Engine
) -> None:
    post_report(github, tmp_path)
    asked = request(github, f"{PREFIX} accept needed for accuracy")
    with served(store) as (host, port):
        service = open_service(
            {
                "ROOFWATCH_SERVER_URL": f"http://{host}:{port}",
                "ROOFWATCH_TOKEN": token_of_today(store, Scope.TRIAGE),
            }
        )
        reply = carry_out(github.repository(), asked, "roofwatch", tell_service=service)
        posted = post_again(github, tmp_path, service)
        github.comments = {
            number: comment
            for number, comment in github.comments.items()
            if number != asked.comment.comment_id
        }
        without_comment = post_again(github, tmp_path, service)

    assert "not told" not in reply.line
    assert (posted.check_run, posted.missing) == ("neutral", ())
    assert without_comment.check_run == "failure"
    with Session(store) as session:
        (stored,) = list_acceptances(session, PROJECT)
        entries = list_entries(session, PROJECT, subject=f"#{NUMBER}")
    assert (stored.pull_request, stored.person, stored.reason, stored.head_sha) == (
        f"#{NUMBER}",
        "maintainer",
        "needed for accuracy",
        HEAD,
    )
    assert [(entry.action, entry.person) for entry in entries] == [
        ("acceptance.store", "maintainer")
    ]


def test_a_service_that_refuses_is_named_in_an_unchanged_answer(
    github: GitHubStandIn, tmp_path: Path
) -> None:
    post_report(github, tmp_path)
    asked = request(github, f"{PREFIX} accept needed for accuracy")

    reply = carry_out(github.repository(), asked, "roofwatch", tell_service=refuse)
    posted = post_again(github, tmp_path, refuse)

    assert reply.reaction == "+1"
    assert "The service was not told: `HTTP 403: no`" in reply.line
    assert posted.check_run == "neutral"
    assert posted.missing == ("the acceptance in the service: HTTP 403: no",)


@pytest.mark.parametrize(
    "variables",
    [{}, {"ROOFWATCH_SERVER_URL": "https://r.example"}, {"ROOFWATCH_TOKEN": "rw_1"}],
)
def test_a_file_of_the_pull_request_names_no_service(
    variables: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "roofwatch.toml").write_text('server_url = "https://thief.example"\n')
    monkeypatch.chdir(tmp_path)

    assert open_service(variables) is None
