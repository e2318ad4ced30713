import re
from dataclasses import replace
from html import unescape
from typing import Any

import pytest
from sqlalchemy import URL, Engine, create_engine, text
from streamlit.testing.v1 import AppTest

from roofwatch.collector.record.machine import Outcome
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.regressions.judgements import replace_regressions
from tests.builders import (
    PROJECT,
    make_commit,
    make_environment,
    make_measurement,
    make_record,
    make_regression,
    sha_of,
)
from tests.dashboard.conftest import OpenView, forget_answers, forget_everything
from tests.dashboard.history import (
    BROKEN_AT,
    COMMIT_COUNT,
    FASTER_AT,
    MATMUL,
    RMS_NORM,
    RMS_NORM_BWD,
    SLOWER_AT,
    SPILLS_AT,
    store_history,
)

VIEWS = ["overview", "regression", "trends", "compare", "kernel"]
HOSTILE = "<img src=x onerror=alert(1)> [click](javascript:alert(1)) :red[x] $x$ `y` **z**"


def texts(app: AppTest) -> str:
    """Everything the view says outside tables and charts."""
    kinds = (
        app.title,
        app.subheader,
        app.caption,
        app.markdown,
        app.text,
        app.info,
        app.warning,
        app.success,
        app.code,
    )
    said = [str(element.value) for kind in kinds for element in kind]
    said += [
        unescape(re.sub("<[^>]*>", " ", one.proto.body)) for one in app.get("html") if "<style" not in one.proto.body
    ]
    return "\n".join([*said, *(f"{one.label} {one.value}" for one in app.metric)])


def table(app: AppTest, column: str) -> Any:
    """The table that has the column."""
    return next(one.value for one in app.dataframe if column in one.value.columns)


def many(app: AppTest, label: str) -> Any:
    """The multiselect with this label."""
    return next(box for box in app.multiselect if box.label == label)


def choice(app: AppTest, label: str) -> Any:
    return next(one for one in app.selectbox if one.label == label)


def address(app: AppTest) -> dict[str, list[str]]:
    return {name: [value] if isinstance(value, str) else list(value) for name, value in app.query_params.items()}


@pytest.mark.parametrize("view", VIEWS)
def test_without_any_run_a_view_says_which_commands_bring_one(open_view: OpenView, view: str) -> None:
    app = open_view(view)
    assert not app.exception
    assert "roofwatch run" in texts(app)
    assert "roofwatch ingest" in texts(app)


@pytest.mark.parametrize("view", VIEWS)
def test_a_run_without_results_is_no_error(open_view: OpenView, store: Engine, view: str) -> None:
    ingest_record(store, make_record(measurements=[]))
    app = open_view(view)
    assert not app.exception
    assert app.info or app.success


@pytest.mark.slow
@pytest.mark.parametrize("view", VIEWS)
def test_a_view_with_data_shows_no_error_and_no_notice(open_view: OpenView, store: Engine, view: str) -> None:
    store_history(store)
    app = open_view(view)
    assert not app.exception
    assert not app.error
    assert not app.warning


@pytest.mark.slow
@pytest.mark.parametrize("view", VIEWS)
def test_an_address_with_values_that_do_not_exist_falls_back_with_a_notice(
    open_view: OpenView, store: Engine, view: str
) -> None:
    store_history(store)
    app = open_view(view, project="no/such", kernel=HOSTILE, metric="x", base="x", commit="x", dirty="perhaps")
    assert not app.exception
    assert app.warning
    assert address(app)["project"] == [PROJECT]


@pytest.mark.slow
@pytest.mark.parametrize("view", VIEWS)
def test_the_address_that_a_view_writes_opens_the_same_view_again(
    open_view: OpenView, store: Engine, view: str
) -> None:
    store_history(store)
    first = open_view(view)
    again = open_view(view, **address(first))
    assert address(again) == address(first)
    assert texts(again) == texts(first)
    assert not again.warning


@pytest.mark.parametrize("view", VIEWS)
def test_an_unreachable_database_is_one_clear_error_with_the_way_out(
    open_view: OpenView, monkeypatch: pytest.MonkeyPatch, view: str
) -> None:
    app = open_view(view)
    monkeypatch.setenv("ROOFWATCH_DATABASE_URL", "postgresql://nobody:secret@127.0.0.1:1/nothing")
    forget_everything()
    app.run()
    assert not app.exception
    (error,) = app.error
    assert "127.0.0.1:1" in error.value
    assert "secret" not in error.value
    assert "ROOFWATCH_DATABASE_URL" in texts(app)


def test_a_database_that_goes_away_is_said_and_found_again_when_it_is_back(
    open_view: OpenView, store: Engine, database_url: URL
) -> None:
    store_history(store)
    store.dispose()
    app = open_view("overview")
    assert not app.error
    name = database_url.database
    admin = create_engine(database_url.set(database="postgres"), isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(text(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false"))
        connection.execute(
            text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = :name"), {"name": name}
        )
        forget_answers()
        app.run()
        assert "the database was lost" in app.error[0].value
        connection.execute(text(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true"))
        app.run()
    admin.dispose()
    assert not app.exception
    assert not app.error


def test_a_setting_that_cannot_be_read_is_an_error_and_no_traceback(
    open_view: OpenView, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROOFWATCH_DATABASE_URL", "mysql://user:secret@localhost/x")
    app = open_view("overview")
    assert not app.exception
    assert "not Postgres" in app.error[0].value


@pytest.mark.slow
@pytest.mark.parametrize("view", VIEWS)
def test_the_project_can_be_chosen_and_is_remembered_across_views(
    open_view: OpenView, store: Engine, view: str
) -> None:
    store_history(store)
    store_history(store, project="another/project")
    app = open_view(view)
    assert choice(app, "Project").options == ["another/project", PROJECT]
    choice(app, "Project").select(PROJECT).run()
    assert address(app)["project"] == [PROJECT]
    app.switch_page("views/kernel.py" if view != "kernel" else "views/trends.py")
    app.query_params.clear()
    app.run()
    assert choice(app, "Project").value == PROJECT


def test_trends_open_where_the_address_points(open_view: OpenView, store: Engine) -> None:
    store_history(store)
    app = open_view(
        "trends", kernel="rms_norm", case=RMS_NORM, metric="flop_per_s", implementation="compile", scale="logarithmic"
    )
    assert not app.warning
    assert choice(app, "Kernel").value == "rms_norm"
    assert choice(app, "Metric").value == "flop_per_s"
    assert many(app, "Implementations").value == ["compile"]
    assert choice(app, "Scale").value == "logarithmic"
    assert address(app)["implementation"] == ["compile"]


def test_a_choice_on_trends_is_written_into_the_address(open_view: OpenView, store: Engine) -> None:
    store_history(store)
    app = open_view("trends", kernel="rms_norm", case=RMS_NORM)
    choice(app, "Metric").select("utilisation").run()
    assert address(app)["metric"] == ["utilisation"]
    many(app, "Implementations").set_value(["eager"]).run()
    assert address(app)["implementation"] == ["eager"]
    choice(app, "Kernel").select("matmul").run()
    assert address(app)["kernel"] == ["matmul"]
    assert not app.exception
    assert not app.warning


def test_trends_list_stored_change_points_with_commit_and_standing(open_view: OpenView, store: Engine) -> None:
    store_history(store)
    changes = table(open_view("trends", kernel="rms_norm", case=RMS_NORM), "verdict")
    assert changes.to_dict("records") == [
        {
            "verdict": "◆ regressed",
            "standing": "open, confirmed",
            "implementation": "eager",
            "change": "+42.0%",
            "level": "10 µs → 14.2 µs",
            "commit": sha_of(SLOWER_AT)[:8],
            "author": "Test Author",
            "subject": f"Change number {SLOWER_AT}",
            "evidence": "median rose from 10 µs to 12 µs",
        }
    ]


def test_a_failed_run_has_no_value_in_the_table_of_trends(open_view: OpenView, store: Engine) -> None:
    store_history(store)
    values = table(open_view("trends", kernel="rms_norm", case=RMS_NORM_BWD, values="open"), "value")
    assert values["value"].isna().tolist() == [number >= BROKEN_AT for number in range(COMMIT_COUNT)]
    assert values["outcome"][BROKEN_AT] == "✕ incorrect"


def test_trends_of_compiled_facts_stay_linear_at_zero(open_view: OpenView, store: Engine) -> None:
    store_history(store)
    app = open_view("trends", kernel="matmul", metric="local_bytes", target="sm_90", scale="logarithmic")
    assert not app.exception
    assert "stays linear" in app.info[0].value


def test_trends_offer_what_can_never_run_here_only_if_there_is_nothing_else(open_view: OpenView, store: Engine) -> None:
    never = make_measurement(implementation="triton", outcome=Outcome.UNSUPPORTED)
    ingest_record(store, make_record(0, measurements=[never]))
    assert many(open_view("trends"), "Implementations").options == ["triton"]
    ingest_record(store, make_record(1, measurements=[never, make_measurement(implementation="eager")]))
    forget_everything()
    assert many(open_view("trends"), "Implementations").options == ["eager"]


def test_runs_of_uncommitted_changes_are_shown_only_on_request(open_view: OpenView, store: Engine) -> None:
    ingest_record(store, make_record(0, commit=make_commit(0, is_dirty=True)))
    assert "no series yet" in texts(open_view("trends"))
    assert len(table(open_view("trends", dirty="yes", values="open"), "value")) == 1


def test_comparing_starts_with_the_two_newest_commits(open_view: OpenView, store: Engine) -> None:
    store_history(store)
    app = open_view("compare")
    assert address(app)["base"] == [sha_of(COMMIT_COUNT - 2)]
    assert address(app)["head"] == [sha_of(COMMIT_COUNT - 1)]


def test_comparing_shows_the_change_and_the_stored_verdict_side_by_side(open_view: OpenView, store: Engine) -> None:
    store_history(store)
    rows = table(open_view("compare", base=sha_of(SLOWER_AT - 1), head=sha_of(SLOWER_AT)), "stored verdict")
    assert rows["case"][0] == RMS_NORM
    assert rows["implementation"][0] == "eager"
    assert rows["change"][0] == pytest.approx(0.42, abs=0.01)
    assert rows["stored verdict"].tolist() == [f"◆ regressed {sha_of(SLOWER_AT)[:8]}", "–", "–", "–", "–"]


def test_comparing_says_on_which_targets_the_machine_code_changed(open_view: OpenView, store: Engine) -> None:
    store_history(store)
    rows = table(open_view("compare", base=sha_of(SPILLS_AT - 1), head=sha_of(SPILLS_AT)), "machine code")
    assert rows["implementation"][0] == "triton"
    assert rows["machine code"][0] == "changed on 6 of 6: gfx942, gfx950, sm_80, sm_90, sm_100, sm_120"
    assert rows["stored verdict"][0] == f"◆ regressed {sha_of(SPILLS_AT)[:8]} (local memory per thread)"


def test_comparing_shows_outcomes_and_errors_that_changed(open_view: OpenView, store: Engine) -> None:
    store_history(store)
    rows = table(open_view("compare", base=sha_of(BROKEN_AT - 1), head=sha_of(BROKEN_AT)), "accuracy")
    broken = rows[rows["case"] == RMS_NORM_BWD]
    assert broken["outcome"].item() == "✓ ok → ✕ incorrect"
    assert broken["accuracy"].item() == "✓ 1.00e-07 → ✕ 3.00e-02 incorrect"


def test_comparing_can_be_narrowed_to_one_kernel(open_view: OpenView, store: Engine) -> None:
    store_history(store)
    rows = table(open_view("compare", kernel="matmul"), "case")
    assert set(rows["case"]) == {MATMUL}


def test_what_exists_on_one_side_only_is_said(open_view: OpenView, store: Engine) -> None:
    ingest_record(store, make_record(0, measurements=[make_measurement(implementation="gone")]))
    ingest_record(store, make_record(1, measurements=[make_measurement(implementation="new")]))
    rows = table(open_view("compare"), "outcome").set_index("implementation")["outcome"]
    assert rows.to_dict() == {"gone": "only on the base: ✓ ok", "new": "only on the head: ✓ ok"}


def test_runs_of_different_runner_classes_are_not_set_against_each_other(open_view: OpenView, store: Engine) -> None:
    ingest_record(store, make_record(0))
    ingest_record(store, make_record(1, environment=make_environment(device_name="Another CPU")))
    app = open_view("compare")
    assert "not comparable" in app.warning[0].value
    assert "Another CPU" in app.warning[0].value
    assert table(app, "change")["change"].isna().all()


def test_the_base_is_taken_from_the_runner_class_of_the_head_if_it_ran_there_too(
    open_view: OpenView, store: Engine
) -> None:
    another = make_environment(device_name="Another CPU")
    ingest_record(store, make_record(0))
    ingest_record(store, make_record(0, environment=another))
    ingest_record(store, make_record(1))
    assert not open_view("compare").warning


def test_a_head_that_is_older_than_the_base_is_said(open_view: OpenView, store: Engine) -> None:
    store_history(store)
    app = open_view("compare", base=sha_of(3), head=sha_of(1))
    assert "older than the base" in app.info[0].value


def test_a_commit_is_not_compared_with_itself(open_view: OpenView, store: Engine) -> None:
    store_history(store)
    app = open_view("compare", base=sha_of(3), head=sha_of(3))
    assert "same commit" in app.info[0].value
    assert not app.dataframe


def test_the_kernel_view_names_the_fastest_implementation_and_every_failure(open_view: OpenView, store: Engine) -> None:
    store_history(store)
    times = table(open_view("kernel", kernel="rms_norm"), "best").set_index("case")
    assert times.loc[RMS_NORM, "best"] == "compile"
    assert times.loc[RMS_NORM, "utilisation"] == pytest.approx(0.5)
    assert times.loc[RMS_NORM_BWD, "best"] == "none was measured"
    assert times.loc[RMS_NORM_BWD, "eager, time"] == "✕ incorrect"


def test_the_kernel_view_marks_compiled_code_that_changed_since_the_previous_commit(
    open_view: OpenView, store: Engine
) -> None:
    store_history(store)
    changed = table(open_view("kernel", kernel="matmul", commit=sha_of(SPILLS_AT)), "changed")
    assert set(changed["changed"]) == {"◆ code changed, registers 64 → 255, local bytes 0 → 96"}
    quiet = table(open_view("kernel", kernel="matmul", commit=sha_of(SPILLS_AT + 1)), "changed")
    assert set(quiet["changed"]) == {"same machine code"}
    first = table(open_view("kernel", kernel="matmul", commit=sha_of(0)), "changed")
    assert set(first["changed"]) == {"first commit"}
    assert first["local (B)"].tolist() == [0] * 6


def test_the_kernel_view_shows_the_error_of_every_check(open_view: OpenView, store: Engine) -> None:
    store_history(store)
    checks = table(open_view("kernel", kernel="rms_norm"), "error (RMSE / RMS)").set_index(["case", "implementation"])
    assert checks.loc[(RMS_NORM, "eager"), "outcome"] == "✓ ok"
    assert checks.loc[(RMS_NORM_BWD, "eager"), "error (RMSE / RMS)"] == pytest.approx(3e-2)


def test_the_kernel_view_opens_with_the_newest_commit(open_view: OpenView, store: Engine) -> None:
    store_history(store)
    assert address(open_view("kernel"))["commit"] == [sha_of(FASTER_AT)]


@pytest.mark.parametrize("view", VIEWS)
def test_text_from_records_reaches_markdown_only_inside_code(open_view: OpenView, store: Engine, view: str) -> None:
    case_id = f"{HOSTILE.replace('/', '')}/n=1/float32/fwd"
    for number in range(2):
        ingest_record(
            store,
            make_record(
                number,
                commit=make_commit(number, author=HOSTILE, subject=HOSTILE),
                environment=make_environment(device_name=HOSTILE),
                measurements=[
                    make_measurement(case_id, implementation=HOSTILE),
                    make_measurement(case_id, implementation="failed", outcome=Outcome.CRASHED, message=HOSTILE),
                ],
            ),
        )
    regression = make_regression(1, kernel=HOSTILE, summary=HOSTILE)
    change = regression.change_points[0]
    series = replace(change.series, case_id=case_id, implementation=HOSTILE)
    replace_regressions(store, PROJECT, [replace(regression, change_points=(replace(change, series=series),))])
    app = open_view(view)
    assert not app.exception
    for kind in (app.markdown, app.caption, app.info, app.warning, app.success, app.subheader):
        for element in kind:
            assert "<img" not in element.value or "`` <img" in element.value
