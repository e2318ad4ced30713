"""The view Trends: which series, of which commits, on which scale."""

from __future__ import annotations

from sqlalchemy import Engine

from db.storing.ingest import ingest_record
from tests.builders import make_measurement, make_record, sha_of
from tests.dashboard.conftest import OpenView
from tests.dashboard.history import COMMIT_COUNT, RMS_NORM, RMS_NORM_BWD, store_history
from tests.dashboard.test_views import address, choice, many, texts


def test_further_metrics_and_cases_join_the_figure_and_the_address(open_view: OpenView, store: Engine) -> None:
    store_history(store)
    app = open_view("trends", kernel="rms_norm", case=RMS_NORM)
    many(app, "Further metrics").set_value(["utilisation"]).run()
    many(app, "Beside it").set_value([RMS_NORM_BWD]).run()

    assert not app.exception
    assert address(app)["further"] == ["utilisation"]
    assert address(app)["beside"] == [RMS_NORM_BWD]
    assert "utilisation" in texts(app)


def test_every_scale_draws_without_an_error(open_view: OpenView, store: Engine) -> None:
    store_history(store)
    for scale in ("relative", "logarithmic", "absolute"):
        app = open_view("trends", kernel="rms_norm", case=RMS_NORM, scale=scale)
        assert not app.exception
        assert choice(app, "Scale").value == scale


def test_a_short_history_has_no_window_to_choose(open_view: OpenView, store: Engine) -> None:
    store_history(store)
    assert COMMIT_COUNT <= 100
    assert "Commits" not in {box.label for box in open_view("trends").selectbox}


def test_a_window_shows_as_many_commits_as_it_says_and_can_end_anywhere(open_view: OpenView, store: Engine) -> None:
    for number in range(130):
        ingest_record(store, make_record(number, measurements=[make_measurement()]))
    app = open_view("trends", window="100")
    assert app.dataframe[-1].value["commit"].tolist() == [sha_of(number)[:8] for number in range(30, 130)]

    app = open_view("trends", window="100", end=sha_of(109))
    assert app.dataframe[-1].value["commit"].tolist() == [sha_of(number)[:8] for number in range(10, 110)]
