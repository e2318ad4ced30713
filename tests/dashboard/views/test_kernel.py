"""Kernel."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import Engine

from roofwatch.db.ingest.ingest import ingest_record
from tests.builders import make_case, make_measurement, make_record, sha_of
from tests.dashboard.conftest import OpenView
from tests.dashboard.gpu_history import SOFTMAX, SOFTMAX_SMALL
from tests.dashboard.history import RMS_NORM, RMS_NORM_BWD, SPILLS_AT
from tests.dashboard.seen import figures, table, texts


@pytest.mark.usefixtures("judged")
def test_the_kernel_view_names_the_fastest_implementation_every_failure_and_every_error(
    open_view: OpenView,
) -> None:
    app = open_view("kernel", kernel="rms_norm")
    times = table(app, "best").set_index("case")
    assert times.loc[RMS_NORM, "best"] == "compile"
    assert times.loc[RMS_NORM, "utilisation"] == pytest.approx(0.5)
    assert times.loc[RMS_NORM_BWD, "best"] == "none was measured"
    assert times.loc[RMS_NORM_BWD, "torch, time"] == "incorrect"
    checks = table(app, "error (RMSE / RMS)").set_index(["case", "implementation"])
    assert checks.loc[(RMS_NORM, "torch"), "outcome"] == "ok"
    assert checks.loc[(RMS_NORM_BWD, "torch"), "error (RMSE / RMS)"] == pytest.approx(3e-2)


@pytest.mark.usefixtures("judged")
def test_the_kernel_view_marks_compiled_code_that_changed_since_the_previous_commit(
    open_view: OpenView,
) -> None:
    changed = table(open_view("kernel", kernel="matmul", commit=sha_of(SPILLS_AT)), "changed")
    assert set(changed["changed"]) == {
        "code changed, local memory per thread 0 B to 96 B, registers per thread 64 to 255"
    }
    quiet = table(open_view("kernel", kernel="matmul", commit=sha_of(SPILLS_AT + 1)), "changed")
    assert set(quiet["changed"]) == {"same machine code"}
    first = table(open_view("kernel", kernel="matmul", commit=sha_of(0)), "changed")
    assert set(first["changed"]) == {"first commit"}
    assert first["local memory"].tolist() == [0] * 6


@pytest.mark.usefixtures("judged")
def test_the_kernel_view_shows_what_is_proven_without_a_gpu(open_view: OpenView) -> None:
    (row,) = table(open_view("kernel", kernel="matmul"), "32-bit offsets").to_dict("records")

    assert row["32-bit offsets"] == "all 3 accesses fit into 32 bits"
    assert (row["torch operators"], row["bytes moved"]) == ("1 clone", 2**30)


@pytest.mark.usefixtures("records")
def test_the_kernel_view_compares_the_best_with_the_second_best_and_diagnoses_what_was_timed(
    open_view: OpenView,
) -> None:
    app = open_view("kernel", kernel="softmax", diagnoses="open")
    best = table(app, "significant?").set_index("case")
    assert best.loc[SOFTMAX, "best"] == "triton"
    assert best.loc[SOFTMAX, "speedup"] == "+55.0% against torch"
    assert best.loc[SOFTMAX, "significant?"] == "faster"
    assert best.loc[SOFTMAX_SMALL, "significant?"] == "as fast"
    assert "`kernels/softmax.py:12`" in texts(app)
    assert "limit **memory**" in texts(app)
    diagnoses = table(app, "why").set_index(["case", "implementation"])
    assert diagnoses.loc[(SOFTMAX, "triton"), "limit"] == "memory"
    assert "40 µs" in diagnoses.loc[(SOFTMAX, "triton"), "why"]


@pytest.mark.usefixtures("records")
def test_the_kernel_view_shows_autotuning_counters_and_errors(open_view: OpenView) -> None:
    app = open_view("kernel", kernel="softmax", configurations="open")
    # the roofline and the landscape of the autotuner
    assert figures(app) == 2
    tried = table(app, "result")
    assert tried["time"].dropna().is_monotonic_increasing
    assert tried["result"].tolist().count("chosen") == 1
    counters = table(app, "counter").set_index("counter").iloc[:, 0]
    assert counters["l2 hit share"] == "12.0%"
    assert table(app, "rule")["rule"].tolist() == ["occupancy"]
    errors = table(app, "torch's error").set_index("tensor")
    assert errors.loc["out", "relative to torch"] == pytest.approx(2.0 / 2.1)
    assert set(errors.index) == {"out", "grad_x"}


COPY = "memory_copy/n=8/float32/fwd"


@pytest.mark.parametrize(
    ("fields", "count", "words"),
    [
        ({}, 1, "minimum bytes read and written per second"),
        ({"bus_bytes": 20_000.0}, 1, "no measured ceiling for links"),
        ({"memory_bytes": 0.0}, 0, "no roofline"),
    ],
    ids=["memory", "links", "nothing"],
)
def test_the_kernel_view_explains_missing_rooflines(
    open_view: OpenView, store: Engine, fields: dict[str, Any], count: int, words: str
) -> None:
    copying = make_case(COPY, **{"flop_count": 0.0, "memory_bytes": 40_000.0, **fields})
    ingest_record(store, make_record(cases=(copying,), measurements=[make_measurement(COPY)]))
    app = open_view("kernel", kernel="memory_copy")
    assert figures(app) == count
    assert words in texts(app)
