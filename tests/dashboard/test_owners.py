"""Who owns what became slower: on its row, in its view, and as a filter."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import Engine

from roofwatch.collector.record.record import SourceLine
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.regressions.judgements import replace_regressions
from roofwatch.db.regressions.triage import regression_id
from tests.builders import PROJECT, make_record
from tests.dashboard.conftest import OpenView
from tests.dashboard.history import store_history
from tests.dashboard.test_overview import rows
from tests.dashboard.test_views import address, many, texts


@pytest.fixture
def owned(store: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """rms_norm by its file and CODEOWNERS, matmul by the rules' own table."""
    (tmp_path / "CODEOWNERS").write_text("/kernels/norm/ @ml/norms\n")
    (tmp_path / "alerts.toml").write_text(
        'codeowners = "CODEOWNERS"\n[[owners]]\nkernels = ["mat*"]\nowners = ["ada@example.com"]\n'
    )
    monkeypatch.setenv("ROOFWATCH_ALERT_RULES", str(tmp_path / "alerts.toml"))
    judged = store_history(store)
    line = SourceLine(
        kernel="rms_norm",
        implementation="eager",
        function="rms_norm",
        file="kernels/norm/rms_norm.py",
        line=1,
        is_jitted=False,
    )
    ingest_record(store, make_record(9, source_lines=(line,)))
    replace_regressions(store, PROJECT, judged)


@pytest.mark.usefixtures("owned")
def test_each_row_names_the_owner_of_its_kernel(open_view: OpenView) -> None:
    said = texts(open_view("overview"))
    assert said.count("@ml/norms") == 2
    assert said.count("ada@example.com") == 1


@pytest.mark.usefixtures("owned")
def test_an_owner_narrows_the_overview_to_what_is_theirs(open_view: OpenView, store: Engine) -> None:
    judged = store_history(store)
    app = open_view("overview", owner="ada@example.com")
    assert many(app, "Owner").options == ["@ml/norms", "ada@example.com"]
    assert rows(app, judged) == ["matmul keeps 96 bytes per thread in local memory on 6 targets"]
    assert address(app)["owner"] == ["ada@example.com"]


@pytest.mark.usefixtures("owned")
def test_the_regression_and_the_kernel_name_the_owner_too(open_view: OpenView, store: Engine) -> None:
    slower = store_history(store)[0]
    assert "Owner: @ml/norms" in texts(open_view("regression", regression=str(regression_id(slower))))
    assert "Owner: `@ml/norms`" in texts(open_view("kernel", kernel="rms_norm"))


def test_without_rules_nobody_is_named_and_nothing_is_missing(open_view: OpenView, store: Engine) -> None:
    store_history(store)
    app = open_view("overview")
    assert not app.exception
    assert "Owner" not in texts(app)


def test_rules_that_cannot_be_read_cost_no_view(
    open_view: OpenView, store: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_history(store)
    monkeypatch.setenv("ROOFWATCH_ALERT_RULES", str(tmp_path / "gone.toml"))
    app = open_view("overview")
    assert not app.exception
    assert "Open regressions: 3" in texts(app)
