"""Fuzzing: no request causes a status of 500 or above."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from contextlib import suppress
from typing import Any

import pytest
import schemathesis
import zstandard
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from sqlalchemy import Engine
from starlette.testclient import TestClient

from roofwatch.model.history import Scope
from tests.api.conftest import PARAMETERS, UNLIMITED, MakeToken, headers_of, make_app
from tests.api.test_access import PUBLIC, ROUTES
from tests.builders import make_artefact, make_complete_record


def repeatable(examples: int) -> settings:
    """The same examples in each run, without a deadline."""
    return settings(
        max_examples=examples,
        derandomize=True,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=[
            HealthCheck.function_scoped_fixture,
            HealthCheck.too_slow,
            HealthCheck.filter_too_much,
        ],
    )


RECORD: dict[str, Any] = make_complete_record(artefacts=[make_artefact()]).model_dump(mode="json")

odd_text = st.sampled_from(
    ["", "\0", "\ud800", "\u202e", "'", '"', "a" * 600, "a" * 5_000, "é" * 500, "NaN", "${x}"]
)
odd_number = st.sampled_from(
    [0, -1, 2**31, 2**63 - 1, 2**63, 2**64, 10**400, 1e-320, 1e308, -0.0, True]
)
odd_time = st.sampled_from(
    ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "2026-02-30T00:00:00Z", 1e18, "Z"]
)
values = st.recursive(
    st.none()
    | odd_text
    | odd_number
    | odd_time
    | st.text(max_size=20)
    | st.integers()
    | st.floats(),
    lambda children: (
        st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=10), children, max_size=3)
    ),
    max_leaves=8,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path to every value of a document."""
    found = [path] if path else []
    children = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for step, child in children:
        found += places(child, (*path, step))
    return found


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """A copy with another value at a path."""
    if not path:
        return new
    copy = value.copy()
    copy[path[0]] = replaced(value[path[0]], path[1:], new)
    return copy


@pytest.mark.slow
@repeatable(150)
@given(
    path=st.sampled_from(places(RECORD)),
    new=values,
    unknown=st.dictionaries(st.text(max_size=5), values, max_size=1),
)
def test_mutated_records_never_fail_inside(
    client: TestClient, path: tuple[Any, ...], new: Any, unknown: dict[str, Any]
) -> None:
    body = json.dumps(replaced(RECORD, path, new) | unknown).encode(errors="surrogatepass")

    answer = client.post("/v1/records", content=body)

    assert answer.status_code < 500, answer.text
    if answer.status_code >= 300:
        assert answer.json()["detail"]


@repeatable(150)
@given(
    body=st.binary(max_size=200),
    pack=st.sampled_from([bytes, gzip.compress, zstandard.ZstdCompressor().compress]),
    encoding=st.sampled_from(["identity", "gzip", "zstd", "br", "gzip, gzip", ""]),
    cut=st.integers(0, 30),
)
def test_random_bytes_are_refused(
    client: TestClient, body: bytes, pack: Any, encoding: str, cut: int
) -> None:
    packed = pack(body)[: len(body) + 30 - cut]

    answer = client.post("/v1/records", content=packed, headers={"Content-Encoding": encoding})

    assert 400 <= answer.status_code < 500


INCOMPLETE_SCHEMAS = {
    "POST /v1/records",
    "POST /v1/questions/{question}",
    "PUT /v1/runs/{run_id}/artefacts/{sha256}",
    "POST /v1/queue/jobs",
    "POST /v1/queue/take",
    "PUT /v1/queue/jobs/{job_id}/tree",
    # of a job that the runner holds
    "GET /v1/queue/jobs/{job_id}/tree",
    "POST /v1/queue/jobs/{job_id}/progress",
    "POST /v1/queue/jobs/{job_id}/release",
    "PUT /v1/queue/jobs/{job_id}/result",
}
"""Routes whose schema does not describe the whole body; other tests send valid bodies."""
WITHOUT_INPUT = {"GET /healthz", "GET /readyz"}

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


@pytest.mark.slow
@pytest.mark.parametrize("mode", GenerationMode)
def test_responses_conform_to_openapi(
    filled: Engine, make_token: MakeToken, mode: GenerationMode
) -> None:
    app = make_app(filled, UNLIMITED, exports_series=True)
    schema = schemathesis.openapi.from_asgi("/v1/openapi.json", app)
    persons = headers_of(make_token(project=None))
    runners = headers_of(make_token(Scope.RUNNER, project=None))
    of_runners = {
        f"{route.method.upper()} {route.path}" for route in ROUTES if route.scope is Scope.RUNNER
    }
    labels: set[str] = set()
    answered: defaultdict[str, set[int]] = defaultdict(set)

    for found in schema.get_all_operations():
        assert isinstance(found, Ok)
        operation = found.ok()
        cases = operation.as_strategy(generation_mode=mode)
        labels.add(operation.label)

        @repeatable(12)
        @given(case=cases)
        def ask(case: Case[Any]) -> None:
            if mode.is_positive:
                case.path_parameters |= {name: PARAMETERS[name] for name in case.path_parameters}
                case.query |= {name: PARAMETERS[name] for name in case.query if name in PARAMETERS}
            headers = runners if case.operation.label in of_runners else persons
            response = case.call(headers=headers)
            answered[case.operation.label].add(response.status_code // 100)
            case.validate_response(response, checks=CHECKS)

        with suppress(Unsatisfiable):
            ask()

    assert len(labels) == len(ROUTES) + len(PUBLIC)
    if mode.is_positive:
        assert {label for label in labels if 2 not in answered[label]} == INCOMPLETE_SCHEMAS
    else:
        assert {label for label in labels if 4 not in answered[label]} == WITHOUT_INPUT
