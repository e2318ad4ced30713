from __future__ import annotations

import pytest

from roofwatch.collector.record.record import RunRecord
from tests.dashboard.conftest import OpenView
from tests.dashboard.gpu_history import SOFTMAX, SOFTMAX_SMALL
from tests.dashboard.measuring.seen import figures
from tests.dashboard.test_views import address, choice, table, texts


def test_the_kernel_view_tells_whether_the_best_is_beyond_the_noise(
    open_view: OpenView, records: list[RunRecord]
) -> None:
    best = table(open_view("kernel", kernel="softmax"), "beyond noise?").set_index("case")
    assert best.loc[SOFTMAX, "best"] == "triton"
    assert best.loc[SOFTMAX, "lead"] == "+55.0% against eager"
    assert best.loc[SOFTMAX, "beyond noise?"] == "● clearly faster"
    assert best.loc[SOFTMAX_SMALL, "beyond noise?"] == "= as fast"


def test_the_kernel_view_tells_occupancy_and_what_limits_it(open_view: OpenView, records: list[RunRecord]) -> None:
    static = table(open_view("kernel", kernel="softmax"), "occupancy")
    assert set(static["limited by"]) == {"registers"}
    assert set(static["occupancy"]) == {0.5}
    assert set(static["changed"]) == {"◆ code changed, registers 68 → 69"}


def test_the_kernel_view_diagnoses_what_was_timed_and_names_its_source(
    open_view: OpenView, records: list[RunRecord]
) -> None:
    app = open_view("kernel", kernel="softmax", diagnoses="open")
    assert "`kernels/softmax.py:12`" in texts(app)
    assert "limit **memory**" in texts(app)
    diagnoses = table(app, "why").set_index(["case", "implementation"])
    assert diagnoses.loc[(SOFTMAX, "triton"), "limit"] == "memory"
    assert "40 µs" in diagnoses.loc[(SOFTMAX, "triton"), "why"]


def test_the_kernel_view_has_what_the_autotuner_tried_the_counters_and_the_errors(
    open_view: OpenView, records: list[RunRecord]
) -> None:
    app = open_view("kernel", kernel="softmax", configurations="open")
    # the roofline, and of the autotuner the list
    assert figures(app) == 2
    assert any("BLOCK" in one.proto.body and "★" in one.proto.body for one in app.get("html"))
    counters = table(app, "counter").set_index("counter").iloc[:, 0]
    assert counters["l2 hit share"] == "12.0%"
    assert table(app, "rule")["rule"].tolist() == ["occupancy"]
    errors = table(app, "eager's error").set_index("tensor")
    assert errors.loc["out", "share of eager's"] == pytest.approx(2.0 / 2.1)
    assert set(errors.index) == {"out", "grad_x"}


def test_the_path_over_commits_is_read_only_where_it_is_asked_for(
    open_view: OpenView, records: list[RunRecord], statements: list[str]
) -> None:
    app = open_view("kernel", kernel="softmax")
    without = sum("sample_set.content" in one and "LIMIT" in one for one in statements)
    choice(app, "Path over commits").set_value(f"{SOFTMAX} triton").run()
    assert address(app)["path"] == [f"{SOFTMAX} triton"]
    assert (without, sum("sample_set.content" in one and "LIMIT" in one for one in statements)) == (0, 1)
