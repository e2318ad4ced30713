"""Workloads on Overview, Kernel and Compare."""

from __future__ import annotations

import pytest
from sqlalchemy import Engine

from tests.builders import sha_of
from tests.dashboard.conftest import OpenView
from tests.dashboard.gpu_history import gpu
from tests.dashboard.seen import figures, markup, table
from tests.dashboard.views.test_roof import rows
from tests.dashboard.workload_history import COMMIT_COUNT, DECODE, FORMULA, store_workloads


@pytest.fixture
def workloads(store: Engine) -> None:
    store_workloads(store)


@pytest.mark.usefixtures("workloads")
def test_a_workload_is_a_row_with_its_rate_on_each_runner(open_view: OpenView) -> None:
    cells = rows(markup(open_view("roof")))

    rates = {word for row in cells for word in ("6.67 k tokens/s", "200 tokens/s") if word in row}
    assert len(cells) == 2
    assert rates == {"6.67 k tokens/s", "200 tokens/s"}


@pytest.mark.usefixtures("workloads")
def test_the_kernel_view_of_a_workload_shows_formulas_instead_of_a_roofline(
    open_view: OpenView,
) -> None:
    app = open_view("roof", kernel="llama_decode", runner=gpu().runner_class)

    values = table(app, "formula").set_index(["implementation", "metric"])
    assert values.loc[("triton", "MFU"), ["value", "formula"]].tolist() == ["0.2%", FORMULA]
    assert values.loc[("triton", "token rate"), "value"] == "6.67 k tokens/s"
    assert values.loc[("torch", "token rate"), "formula"] == "8 tokens / 2 ms"
    assert figures(app) == 0


@pytest.mark.usefixtures("workloads")
def test_comparing_explains_the_change_of_a_profiled_step(open_view: OpenView) -> None:
    sides = {"base": sha_of(COMMIT_COUNT - 2), "head": sha_of(COMMIT_COUNT - 1)}
    app = open_view(
        "compare",
        **sides,
        runner=gpu().runner_class,
        case=DECODE,
        implementation="triton",
        metric="median_ns",
    )

    changes_ns = table(app, "term").set_index("term")["change"]
    assert changes_ns["step"] == pytest.approx(200_000)
    assert changes_ns["+ added launches"] == pytest.approx(200_000)
    assert changes_ns["residual"] == pytest.approx(0)
    assert table(app, "kernels")["kernels"].tolist() == ["added: copy"]
