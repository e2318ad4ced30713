"""docs/api.md says what is."""

from roofwatch.api.limits import Limits
from roofwatch.db.auth.values import Scope, TriageState
from tests.api.test_access import OPEN, ROUTES
from tests.docs.markdown import ROOT, code_spans, table_under

PAGE = ROOT / "docs" / "api.md"
MIB = 2**20


def test_every_route_is_listed_with_its_scope() -> None:
    listed = {(route, scope) for route, scope, _ in table_under(PAGE, "Routes")}

    needing = {(f"{route.method.upper()} {route.path}", str(route.scope)) for route in ROUTES}
    assert listed == needing | {(f"{method.upper()} {path}", "none") for method, path in OPEN}


def test_every_scope_and_state_is_named() -> None:
    assert [row[0] for row in table_under(PAGE, "Tokens")] == [scope.value for scope in Scope]
    assert {state.value for state in TriageState} <= set(code_spans(PAGE))


def test_the_limits_are_those_of_the_code() -> None:
    limits = Limits()
    said = dict(table_under(PAGE, "Limits"))

    assert said == {
        "a body as it is sent": f"{limits.body_bytes // MIB} MiB",
        "a record once it is unpacked": f"{limits.document_bytes // MIB} MiB",
        "a decision, or a release from quarantine": f"{limits.decision_bytes // 2**10} KiB",
        "a question of the dashboard": f"{limits.question_bytes // MIB} MiB",
        "the answer to a question of a dashboard": f"{limits.answer_bytes // MIB} MiB",
        "all bodies that are being read at once": f"{limits.upload_bytes // MIB} MiB",
        "arrays and objects in each other": f"{limits.depth}",
        "arrays and objects in a record": f"{limits.containers:,}",
        "values in a record": f"{limits.values:,}",
        "keys in a record": f"{limits.keys:,}",
        "cases of a record": f"{limits.cases:,}",
        "results of one kind": f"{limits.entries:,}",
        "files that a record names": f"{limits.artefacts:,}",
        "a file of a run": f"{limits.artefact_bytes // 2**20} MiB",
        "all files of a run": f"{limits.run_artefact_bytes // 2**30} GiB",
        "one string": f"{limits.string_characters:,} characters",
        "records and files that are stored at once": f"{limits.ingests}",
        "the wait for one of these turns": f"{limits.turn_s:g} s, then 503",
        "requests of one token": limits.requests,
        "requests that are worked on at once": (
            "database_connections of the [settings](../README.md#configuration), "
            "but one for analysis and one for alerts"
        ),
        "wrong tokens from one address": limits.failures,
        "connections": f"{limits.connections}",
        "the head of a request": f"{limits.head_s:g} s",
        "points of a page of series": f"{limits.points:,}",
        "a pause within a body": f"{limits.silence_s:g} s",
        "a whole body": f"{limits.body_s:g} s",
        "one question to the database": f"{limits.query_s:g} s",
    }
