"""A restricted project is shown to its readers only, whatever the address says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from uuid import UUID

import pytest
from sqlalchemy import URL, Engine
from sqlalchemy.orm import Session
from streamlit.testing.v1 import AppTest

from roofwatch.configuration.settings import Settings
from roofwatch.dashboard import access, data
from roofwatch.dashboard.access import Person, person_of
from roofwatch.dashboard.data import RestrictedError
from roofwatch.dashboard.unfurl import preview_of
from roofwatch.db.project_access import restrict_project, unrestrict_project
from roofwatch.db.queries import questions
from roofwatch.db.queries.runs import list_runs
from roofwatch.db.regressions.judgements import list_triaged
from tests.builders import PROJECT, make_artefact, sha_of
from tests.dashboard.conftest import OpenView, forget_everything
from tests.dashboard.history import RMS_NORM, SLOWER_AT, store_history
from tests.dashboard.seen import texts
from tests.databases import Databases

SECRET = "secret/project"
MEMBER = Person("1", "ada@example.com")
OUTSIDER = Person("2", "eve@example.org", groups=("gpu",))
SignIn = Callable[[Person | None], None]


@pytest.fixture(scope="module")
def store(databases: Databases) -> Iterator[Engine]:
    """A public and a restricted project with equal commits."""
    with databases.store() as engine:
        store_history(engine)
        store_history(engine, project=SECRET)
        restrict_project(engine, SECRET, ["@example.com"], actor="a test")
        yield engine


@pytest.fixture(scope="module")
def database_url(store: Engine) -> URL:
    return store.url


@pytest.fixture
def sign_in(open_view: OpenView, monkeypatch: pytest.MonkeyPatch) -> SignIn:
    """Let somebody sign in, or nobody."""
    settings = Settings(sign_in_issuer="https://provider.example.com")
    monkeypatch.setattr(access, "load_settings", lambda: settings)
    return lambda person: monkeypatch.setattr(access, "person_here", lambda: person)


def runs_of(store: Engine, project: str) -> list[UUID]:
    with Session(store) as session:
        return [UUID(run.run_id) for run in list_runs(session, project, None)]


def regression_of(store: Engine, project: str) -> UUID:
    with Session(store) as session:
        return UUID(list_triaged(session, project)[0].regression_id)


def test_groups_of_an_identity_token_are_read() -> None:
    claims: dict[str, object] = {"sub": "1", "email": "Ada@example.com", "email_verified": True}
    names = ("ada@example.com", "@example.com")

    assert person_of(claims | {"groups": ["gpu", 7, None]}).names == (*names, "group:gpu")
    assert person_of(claims | {"groups": "gpu"}).names == names
    assert person_of({"email": "ada@example.com", "groups": ["x"]}).names == ("group:x",)


@pytest.mark.parametrize("person", [None, OUTSIDER], ids=["nobody", "an outsider"])
def test_every_way_to_a_restricted_project_is_closed(
    sign_in: SignIn, store: Engine, person: Person | None
) -> None:
    ours, theirs = runs_of(store, PROJECT), runs_of(store, SECRET)
    regression = regression_of(store, SECRET)
    sign_in(MEMBER)
    assert data.list_projects() == [PROJECT, SECRET]
    assert data.ask(questions.list_triaged, SECRET)
    assert data.ask(questions.load_record, theirs[0]).project == SECRET
    data.judge_pair(theirs[0], theirs[1])

    # every answer is remembered now, for all readers
    sign_in(person)

    assert data.list_projects() == [PROJECT]
    assert data.ask(questions.list_triaged, PROJECT)
    closed: list[Callable[[], object]] = [
        lambda: data.ask(questions.list_triaged, SECRET),
        lambda: data.ask(questions.search, SECRET, "rms"),
        lambda: data.ask(questions.list_jobs, SECRET),
        lambda: data.ask(questions.load_record, theirs[0]),
        lambda: data.ask(questions.read_runs, ours[0], theirs[0]),
        lambda: data.ask(questions.list_artefacts, run_id=theirs[0]),
        lambda: data.ask(questions.list_decisions, SECRET, regression),
        lambda: data.ask(questions.read_case_of_runs, ours[0], theirs[0], RMS_NORM),
        lambda: data.judge_pair(ours[0], theirs[0]),
        lambda: data.judge_pair(theirs[0], theirs[1]),
        lambda: data.read_contents((str(theirs[0]), make_artefact().sha256)),
        lambda: data.read_runner_noise(SECRET),
    ]
    for read in closed:
        with pytest.raises(RestrictedError):
            read()


def test_views_show_nothing_of_a_restricted_project(
    sign_in: SignIn, open_view: OpenView, store: Engine
) -> None:
    their_run, regression = str(runs_of(store, SECRET)[0]), str(regression_of(store, SECRET))
    addresses = [
        ("ledger", {"project": SECRET, "regression": regression}),
        ("ledger", {"regression": regression}),
        ("roof", {"project": SECRET}),
        ("compare", {"project": SECRET, "base": sha_of(0), "head": sha_of(SLOWER_AT)}),
        ("machines", {"run": their_run}),
        ("machines", {"project": SECRET, "run": their_run}),
    ]
    sign_in(MEMBER)
    assert SECRET in shown(open_view("ledger", project=SECRET, regression=regression))

    sign_in(OUTSIDER)

    for view, address in addresses:
        # the same as of a project that is not stored
        text = shown(open_view(view, **address)).replace(f"Project `{SECRET}` not found.", "")
        assert SECRET not in text, (view, address)
        assert PROJECT in text, (view, address)
    restrict_project(store, PROJECT, ["group:gpu"], actor="a test")
    forget_everything()
    assert PROJECT in shown(open_view("ledger"))
    sign_in(None)
    app = open_view("ledger")
    assert shown(app).count("You may not read any project here. Sign in") == 1
    assert [button.label for button in app.button] == ["Sign in"]
    unrestrict_project(store, PROJECT, actor="a test")


def test_previews_for_chat_programs_are_those_of_public_projects(open_view: OpenView) -> None:
    def preview(**project: str) -> str:
        return " ".join(preview_of("/", {"commit": sha_of(SLOWER_AT), **project}))

    assert "became 42 % slower" in preview(project=PROJECT)
    assert "became 42 % slower" in preview(), "both projects have the commit, one is public"
    assert "became 42 % slower" not in preview(project=SECRET)


def test_without_sign_in_only_somebody_on_this_machine_reads_a_restricted_project(
    open_view: OpenView, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert data.list_projects() == [PROJECT]

    monkeypatch.setattr(access, "is_local", lambda: True)

    assert data.list_projects() == [PROJECT, SECRET]
    assert data.ask(questions.list_triaged, SECRET)


def shown(app: AppTest) -> str:
    """All that a view shows, with the choices that it offers."""
    assert not app.exception
    drawn = [element.proto.json for element in app.get("bidi_component")]
    boxes = [str(box.options) for box in (*app.selectbox, *app.multiselect)]
    return "\n".join([texts(app), *drawn, *boxes])
