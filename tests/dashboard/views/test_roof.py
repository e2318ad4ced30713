"""Roof: the table of cases by runner, histories, and what one run says of a kernel."""

from __future__ import annotations

import re
from typing import Any

import pytest
from sqlalchemy import Engine

from roofwatch.collector.profiling.ncu_metrics import counters_of
from roofwatch.collector.profiling.profile_file import read_profile
from roofwatch.dashboard.charts.palette import GREY, PAGE_BLUE
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.regressions.judgements import replace_regressions
from roofwatch.model.measurement import Timer
from roofwatch.model.regime import Regime
from roofwatch.model.results import CodeEstimate
from tests.builders import (
    CASE_ID,
    PROJECT,
    make_accuracy,
    make_case,
    make_change_point,
    make_commit,
    make_environment,
    make_measurement,
    make_record,
    make_regression,
    make_series_key,
    make_static_facts,
    make_tensor_error,
    sha_of,
)
from tests.collector.profiling.every_counter import EVERY_COUNTER, LOCAL_LOADS, SHOWN
from tests.dashboard.conftest import OpenView
from tests.dashboard.gpu_history import GEMM, SOFTMAX, SOFTMAX_SMALL, gpu, gpu_ceilings
from tests.dashboard.history import RMS_NORM, RMS_NORM_BWD, SPILLS_AT
from tests.dashboard.seen import address, figures, markup, table, texts

LIBRARY: dict[str, Any] = {"implementation": "cudnn", "median_ns": 30_000.0, "utilisation": 0.9}


def rows(html: str) -> list[str]:
    """The text of each row of the table of cases."""
    body = html.partition("<tbody>")[2].partition("</tbody>")[0]
    return [" ".join(re.sub("<[^>]*>", " ", row).split()) for row in body.split("</tr>") if row]


@pytest.mark.usefixtures("records")
def test_cases_are_listed_by_runner_worst_first_with_their_roofs(open_view: OpenView) -> None:
    html = markup(open_view("roof"))

    # of softmax the library's rows are left out, because the project has its own
    assert [row.split()[0] for row in rows(html)] == ["gemm", "softmax", "softmax"]
    assert "✕ out of memory" in rows(html)[0]
    assert "80.0% of what is achievable (measured)" in html
    # 4.1 TB/s of the datasheet's 4.8
    assert "68.3% of the peak (datasheet)" in html


def test_a_row_has_the_ratio_to_the_library_beside_the_shape_of_the_series(
    open_view: OpenView, store: Engine
) -> None:
    for number in range(3):
        ours = make_measurement(
            implementation="triton", median_ns=45_000.0, utilisation=0.6, reference_ns=30_000.0
        )
        ingest_record(store, make_record(number, measurements=[ours, make_measurement(**LIBRARY)]))
    html = markup(open_view("roof"))

    (row,) = rows(html)
    assert "60%" in row
    assert "1.5× ▴" in row
    assert "45 µs" in row
    assert html.count('class="rw-spark"') == 1


def test_of_many_series_each_drawing_has_one_line_beside_the_library(
    open_view: OpenView, store: Engine
) -> None:
    case_ids = [f"softmax/n={2**size}/float32/fwd" for size in range(6, 18)]
    for number in range(6):
        measurements = []
        for case_id in case_ids:
            ours = make_measurement(case_id, implementation="triton", utilisation=0.6)
            measurements += [ours, make_measurement(case_id, **LIBRARY)]
        environment = make_environment(device_name=f"CPU {number % 2}")
        record = make_record(number, measurements=measurements, environment=environment)
        ingest_record(store, record)
    html = markup(open_view("roof"))

    assert len(rows(html)) == len(case_ids) * 2
    drawings = html.split("<figure>")[1:]
    assert len(drawings) == 5, "the chosen series, and four like it"
    for drawing in drawings:
        colours = re.findall(r'<polyline [^>]*stroke="([^"]+)"', drawing)
        assert sorted(colours) == sorted([GREY, PAGE_BLUE])


@pytest.fixture
def throttled(store: Engine) -> None:
    """rms_norm falls from 82 % to 76 % at a change point of its time."""
    for number in range(6):
        share = 0.82 if number < 3 else 0.76
        ours = make_measurement(
            implementation="triton",
            median_ns=40_000.0 / share,
            utilisation=share,
            timer=Timer.CUPTI,
            bound="memory",
        )
        record = make_record(
            number,
            measurements=[ours, make_measurement(**LIBRARY)],
            environment=gpu(),
            ceilings=gpu_ceilings(),
        )
        ingest_record(store, record)
    key = make_series_key(implementation="triton", runner_class=gpu().runner_class)
    change = make_change_point(3, series=key)
    replace_regressions(store, PROJECT, [make_regression(3, change_points=(change,))])


@pytest.mark.usefixtures("throttled")
def test_a_fall_of_the_share_is_marked_by_the_change_point_of_the_time(
    open_view: OpenView,
) -> None:
    html = markup(open_view("roof"))

    assert "◆ +20.0% time" in html
    assert ">achievable (measured)<" in html
    points = re.findall(rf'cy="([\d.]+)%" r="2.6" fill="{re.escape(PAGE_BLUE)}"', html)
    heights = [float(text) for text in points]
    assert len(heights) == 6
    # six points of an axis that ends a little above the datasheet's 4.8 of 4.1 TB/s
    assert heights[3] - heights[2] == pytest.approx(6 / (1.02 * 4.8 / 4.1), abs=0.1)
    assert 'stroke="#888888"><title>90.0%, cudnn' in html


@pytest.mark.usefixtures("records")
def test_a_throttled_run_is_hollow(open_view: OpenView) -> None:
    app = open_view("roof", kernel="softmax", case=SOFTMAX, implementation="triton")

    assert markup(app).count(f'fill="none" stroke="{PAGE_BLUE}"') == 1
    assert "○ throttled or shared" in texts(app)


@pytest.mark.usefixtures("judged")
def test_an_address_of_another_metric_shows_its_history(open_view: OpenView) -> None:
    app = open_view(
        "roof",
        kernel="matmul",
        case="matmul/M=128,N=128,K=128/float32/fwd",
        metric="registers",
        target="sm_90",
        function="_matmul_kernel",
    )
    assert address(app)["metric"] == ["registers"]
    assert "registers per thread" in texts(app)


@pytest.mark.usefixtures("judged")
def test_other_metrics_of_the_case_are_links(open_view: OpenView) -> None:
    html = markup(open_view("roof", kernel="matmul", metrics="open"))
    assert "metric=local_bytes" in html


# --- tabs


@pytest.mark.usefixtures("records")
def test_of_the_tabs_with_data_only_the_chosen_one_is_drawn(
    open_view: OpenView,
) -> None:
    app = open_view("roof", kernel="softmax", case=SOFTMAX, implementation="triton")
    bar = next(one.proto.body for one in app.get("html") if "rw-tabs" in one.proto.body)

    names = re.findall(r"tab=([a-z+]+)", bar)
    assert names == [
        "roofline",
        "limits",
        "implementations",
        "machine+code",
        "accuracy",
        "counters",
        "autotuner",
    ]
    assert 'class="rw-roofline"' in markup(app)
    assert not app.dataframe
    # nothing of Plotly is loaded
    assert figures(app) == 0


@pytest.mark.usefixtures("records")
def test_limits_of_equal_advice_give_it_once_beside_their_possible_times(
    open_view: OpenView,
) -> None:
    app = open_view("roof", kernel="softmax", tab="limits")
    html = markup(app)

    limits = html.partition("Possible")[2]
    assert SOFTMAX in limits
    # 80 % of the roof in 40 µs
    assert "32 µs" in limits
    advice = re.findall("<li>(.*?)</li>", limits)
    assert len(advice) == len(set(advice)) > 0


@pytest.mark.usefixtures("records")
def test_implementations_are_compared_with_the_second_best(open_view: OpenView) -> None:
    app = open_view("roof", kernel="softmax", tab="implementations")
    best = table(app, "significant?").set_index("case")
    assert best.loc[SOFTMAX, "best"] == "triton"
    assert best.loc[SOFTMAX, "speedup"] == "1.55× as fast as torch"
    assert best.loc[SOFTMAX_SMALL, "significant?"] == "as fast"


@pytest.mark.usefixtures("judged")
def test_whatever_failed_is_named(open_view: OpenView) -> None:
    app = open_view("roof", kernel="rms_norm", tab="implementations")
    times = table(app, "best").set_index("case")
    assert times.loc[RMS_NORM, "best"] == "compile"
    assert times.loc[RMS_NORM_BWD, "torch, time"] == "incorrect"
    app = open_view("roof", kernel="rms_norm", tab="accuracy")
    checks = table(app, "error (RMSE / RMS)").set_index(["case", "implementation"])
    assert checks.loc[(RMS_NORM, "torch"), "outcome"] == "ok"
    assert checks.loc[(RMS_NORM_BWD, "torch"), "error (RMSE / RMS)"] == pytest.approx(3e-2)


@pytest.mark.usefixtures("judged")
def test_compiled_code_that_changed_since_the_previous_commit_is_marked(
    open_view: OpenView,
) -> None:
    def changed(number: int) -> set[str]:
        app = open_view("roof", kernel="matmul", commit=sha_of(number), tab="machine code")
        return set(table(app, "changed")["changed"])

    assert changed(SPILLS_AT) == {
        "code changed, local memory per thread 0 B to 96 B, registers per thread 64 to 255"
    }
    assert changed(SPILLS_AT + 1) == {"same machine code"}
    assert changed(0) == {"first commit"}


def test_errors_with_other_values_stand_below_those_with_the_declared_ones(
    open_view: OpenView, store: Engine
) -> None:
    peaked = make_tensor_error(regime=Regime.PEAKED, rmse_ratio=3e-2, passed=False)
    checked = make_accuracy(regimes=[peaked])
    ingest_record(store, make_record(measurements=[make_measurement()], accuracies=[checked]))
    app = open_view("roof", kernel="rms_norm", tab="accuracy")
    checks = table(app, "values")

    assert checks["values"].tolist() == ["declared", "peaked"]
    assert checks["outcome"].tolist() == ["ok", "incorrect"]
    assert checks["error (RMSE / RMS)"].tolist() == pytest.approx([1e-7, 3e-2])
    assert "They do not change the outcome of a case" in texts(app)


def test_the_cycle_model_stands_beside_the_machine_code(open_view: OpenView, store: Engine) -> None:
    estimate = CodeEstimate(
        predicted_ns=30_000.0,
        variants_ns=(30_000.0, 45_000.0),
        limit="memory",
        element_count=4_096,
        instructions_per_element=2.0,
    )
    spilling = make_static_facts(
        registers=255, thread_count=128, local_bytes=96, spill_store_count=24, estimate=estimate
    )
    measured = make_measurement(implementation="triton")
    record = make_record(measurements=[measured], static_facts=[spilling], environment=gpu())
    ingest_record(store, record)
    choices = {"kernel": "rms_norm", "implementation": "triton"}
    app = open_view("roof", **choices, tab="machine code")

    (row,) = table(app, "estimated time").to_dict("records")
    assert row["estimated time"] == 30_000.0
    assert row["estimated range"] == "30 µs to 45 µs"
    assert row["estimated limit"] == "memory"
    assert "does not fit into the registers of 4 warps (at most 255 per thread)" in texts(app)
    limits = markup(open_view("roof", **choices, tab="limits"))
    assert "Estimated" in limits.partition("Implementation")[2]
    assert "30 µs" in limits.partition("Implementation")[2]


@pytest.mark.usefixtures("judged")
def test_what_is_proven_without_a_gpu_stands_beside_the_machine_code(open_view: OpenView) -> None:
    app = open_view("roof", kernel="matmul", tab="machine code")
    (row,) = table(app, "32-bit offsets").to_dict("records")

    assert row["32-bit offsets"] == "all 3 accesses fit into 32 bits"
    assert (row["torch operators"], row["bytes moved"]) == ("1 clone", 2**30)


@pytest.mark.usefixtures("records")
def test_what_was_profiled_has_tabs(open_view: OpenView) -> None:
    choices = {"kernel": "softmax", "case": SOFTMAX, "implementation": "triton"}
    tried = table(open_view("roof", **choices, tab="autotuner"), "result")
    assert tried["time"].dropna().is_monotonic_increasing
    assert tried["result"].tolist().count("chosen") == 1
    app = open_view("roof", **choices, tab="counters")
    counters = table(app, "counter").set_index("counter").iloc[:, 0]
    assert counters["l2 hit share"] == "12.0%"
    assert table(app, "rule")["rule"].tolist() == ["occupancy"]


def test_every_counter_that_engineers_expect_is_in_the_tab(
    open_view: OpenView, store: Engine
) -> None:
    pytest.importorskip(
        "ncu_report", reason="the module that reads Nsight Compute's reports is not installed"
    )
    kernels = read_profile(EVERY_COUNTER)["kernels"]
    record = make_record(
        environment=gpu(),
        measurements=[make_measurement()],
        counters=counters_of(kernels, CASE_ID, "triton"),
    )
    ingest_record(store, record)
    choices = {"kernel": "k", "case": CASE_ID, "implementation": "triton", "tab": "counters"}

    counters = table(open_view("roof", **choices), "counter").set_index("counter").iloc[:, 0]

    for title, value in SHOWN.items():
        is_share = value.endswith("%")
        assert counters[f"{title} share" if is_share else title] == value
    assert counters[LOCAL_LOADS] == "96"


COPY = "memory_copy/n=8/float32/fwd"


def test_a_kernel_without_arithmetic_has_a_share_but_no_roofline(
    open_view: OpenView, store: Engine
) -> None:
    copying = make_case(COPY, flop_count=0.0, memory_bytes=40_000.0)
    ingest_record(store, make_record(cases=(copying,), measurements=[make_measurement(COPY)]))
    app = open_view("roof")

    assert "50%" in rows(markup(app))[0]
    bar = next(one.proto.body for one in app.get("html") if "rw-tabs" in one.proto.body)
    assert "roofline" not in bar


def test_a_branch_has_histories_of_its_own(open_view: OpenView, store: Engine) -> None:
    ingest_record(store, make_record(0))
    ingest_record(
        store,
        make_record(
            1,
            commit=make_commit(1, branch="faster"),
            measurements=[make_measurement(median_ns=1_000.0)],
        ),
    )
    assert "10 µs" in rows(markup(open_view("roof")))[0]
    assert "1 µs" in rows(markup(open_view("roof", branch="faster")))[0]


def test_the_case_of_a_commit_that_has_no_roof_shows_its_time(
    open_view: OpenView, store: Engine
) -> None:
    for number in range(2):
        ingest_record(store, make_record(number, measurements=[make_measurement(utilisation=None)]))
    app = open_view("roof", case=GEMM)

    assert "10 µs" in rows(markup(app))[0]
    assert "lower is better" in texts(app)
