"""A ↔ B."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from sqlalchemy import Engine

from roofwatch.dashboard.comparison import Group
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.model.measurement import MemoryUse
from tests.builders import (
    NOON,
    make_commit,
    make_environment,
    make_measurement,
    make_pair_of_records,
    make_record,
    make_static_facts,
    sha_of,
)
from tests.ci.values import stepped
from tests.dashboard.conftest import OpenView
from tests.dashboard.history import COMMIT_COUNT, RMS_NORM, SLOWER_AT, SPILLS_AT
from tests.dashboard.seen import address, choice, markup, texts

OTHER_DEVICE = make_environment(device_name="Another CPU")


def matrix(html: str) -> dict[str, list[str]]:
    """The cells of each runner."""
    body = html.partition("rw-matrix")[2].partition("</tbody>")[0].partition("<tbody>")[2]
    found = {}
    for row in body.split("</tr>"):
        cells = [" ".join(re.sub("<[^>]*>", " ", cell).split()) for cell in row.split("</td>")]
        if cells[0]:
            found[cells[0]] = cells[1:-1]
    return found


def groups(html: str) -> dict[str, int]:
    found = re.findall(r"<h2 class=\"[^\"]*\">([a-z ]+) · ([\d,]+)</h2>", html)
    return {name: int(count) for name, count in found}


@pytest.mark.usefixtures("judged")
def test_comparing_starts_with_the_two_newest_commits(open_view: OpenView) -> None:
    asked = address(open_view("compare"))
    assert (asked["base"], asked["head"]) == (
        [sha_of(COMMIT_COUNT - 2)],
        [sha_of(COMMIT_COUNT - 1)],
    )


def test_releases_are_compared_on_every_runner_that_measured_both(
    open_view: OpenView, store: Engine
) -> None:
    for number, (tag, factor) in enumerate((("v0.4.0", 1.0), ("v0.5.0", 1.1))):
        for environment in (make_environment(), OTHER_DEVICE):
            commit = make_commit(number, tags=(tag,))
            measured = [
                make_measurement(implementation=name, median_ns=10_000.0 * factor)
                for name in ("a", "b", "c")
            ]
            ingest_record(
                store,
                make_record(number, commit=commit, measurements=measured, environment=environment),
            )
    app = open_view("compare")

    assert address(app)["base"] == ["v0.4.0"]
    assert address(app)["head"] == ["v0.5.0"]
    rows = matrix(markup(app))
    assert set(rows) == {"Example CPU", "Another CPU"}
    for cells in rows.values():
        # no slower, no faster, three that cannot be said
        assert cells[:4] == ["+10.0% [+10.0%, +10.0%]", "0", "0", "3"]
        assert cells[-1] == "50.0% → 50.0%"
    heads = markup(app).partition("</thead>")[0]
    counted = [group for group in Group if f">{group}</th>" in heads]
    assert counted == [Group.SLOWER, Group.FASTER, Group.CANNOT_SAY], "no columns of zeros"
    assert not app.warning


def test_separate_runs_decide_nothing_however_large_the_difference(
    open_view: OpenView, store: Engine
) -> None:
    slow = stepped(count=12, at=11, noise=0.01)
    for number in range(12):
        code = make_static_facts(implementation="slow", code=str(number))
        measured = [make_measurement(implementation="slow", median_ns=slow[number])]
        record = make_record(
            number, measurements=measured, static_facts=[code] if number in (10, 11) else []
        )
        ingest_record(store, record)
        if number == 11:  # a newer run of the same commit, without compiled code
            later = make_record(number, measurements=measured, started_at=NOON + timedelta(days=9))
            ingest_record(store, later)
    app = open_view("compare")

    assert groups(markup(app)) == {"cannot say": 1}
    assert "undecided: separate runs; machine code changed on 1 of 1: sm_90" in texts(app)


def test_a_stored_pair_gives_its_verdict_with_an_interval(
    open_view: OpenView, store: Engine
) -> None:
    for record in make_pair_of_records(head_median_ns=13_000.0, block_count=12):
        ingest_record(store, record)
    app = open_view("compare")

    html = markup(app)
    assert groups(html) == {"slower": 1}
    assert matrix(html)["Example CPU"][1] == "1"
    assert re.search(r"\+30.0%, 95 % interval \+\d\d.\d% to \+\d\d.\d%", html)


def test_a_pair_without_a_change_says_so(open_view: OpenView, store: Engine) -> None:
    for record in make_pair_of_records(block_count=12):
        ingest_record(store, record)
    app = open_view("compare")

    assert groups(markup(app)) == {"unchanged": 1}
    assert "Nothing changed." in texts(app)


def test_of_300_kernels_the_first_rows_are_drawn(open_view: OpenView, store: Engine) -> None:
    for number in range(2):
        measurements = [
            make_measurement(f"kernel_{kernel:03}/n=4096/float32/fwd", median_ns=10_000.0 + kernel)
            for kernel in range(300)
        ]
        ingest_record(store, make_record(number, measurements=measurements))

    app = open_view("compare")
    html = markup(app)

    assert groups(html) == {"cannot say": 300}
    assert html.count("rw-compared rw-case rw-single") == 200
    assert "<summary" not in html, "the only case of a kernel needs no row above it"
    assert html.count("undecided: separate runs") == 1, "what holds for all is said once"
    assert "The first 200 of 300; the files below have all." in html
    assert len(app.get("download_button")) == 3


def test_what_holds_for_most_rows_is_said_once(open_view: OpenView, store: Engine) -> None:
    names = [f"implementation_{number}" for number in range(8)]
    for number in range(2):
        measured = [make_measurement(implementation=name) for name in names]
        code = make_static_facts(implementation=names[3], code=str(number))
        ingest_record(store, make_record(number, measurements=measured, static_facts=[code]))

    html = markup(open_view("compare"))

    assert html.count("undecided: separate runs, unless a row says more") == 1
    rows = [row for row in html.split("<a ") if "rw-case" in row]
    more = [row for row in rows if "undecided: separate runs" in row]
    assert len(rows) == len(names)
    assert len(more) == 1
    assert "implementation_3" in more[0]
    assert "undecided: separate runs; machine code changed on 1 of 1" in more[0]


@pytest.mark.usefixtures("judged")
def test_what_the_history_found_between_the_two_is_marked(open_view: OpenView) -> None:
    app = open_view("compare", base=sha_of(SLOWER_AT - 1), head=sha_of(SLOWER_AT))
    assert f"at {sha_of(SLOWER_AT)[:8]}" in texts(app)
    app = open_view("compare", base=sha_of(SPILLS_AT - 1), head=sha_of(SPILLS_AT))
    said = texts(app)
    assert "machine code changed on 6 of 6: gfx942, gfx950, sm_80, sm_90, sm_100, sm_120" in said
    assert f"at {sha_of(SPILLS_AT)[:8]}" in said


@pytest.mark.usefixtures("judged")
def test_a_row_unfolds_to_its_evidence_with_the_command_that_decides(
    open_view: OpenView,
) -> None:
    app = open_view(
        "compare",
        base=sha_of(SLOWER_AT - 1),
        head=sha_of(SLOWER_AT),
        case=RMS_NORM,
        implementation="torch",
        metric="median_ns",
    )
    html = markup(app)
    shas = [sha_of(number)[:8] for number in (SLOWER_AT - 1, SLOWER_AT)]
    command = "roofwatch ab path/to/bench_file.py --base {} --head {}".format(*shas)
    assert f"{command} --kernel rms_norm --implementation torch" in html
    assert html.count('class="rw-history"') == 1
    assert html.count('class="rw-samples"') == 1
    assert address(app)["case"] == [RMS_NORM]


def test_one_sided_rows_say_which_side_they_lack(open_view: OpenView, store: Engine) -> None:
    for number, name in enumerate(("gone", "new")):
        measurements = [make_measurement(implementation=name), make_measurement()]
        ingest_record(store, make_record(number, measurements=measurements))
    said = texts(open_view("compare"))
    assert "removed benchmark" in said
    assert "new benchmark" in said


def test_two_machines_are_ratios_under_the_heading_no_verdict(
    open_view: OpenView, store: Engine
) -> None:
    ingest_record(store, make_record(0, measurements=[make_measurement(median_ns=10_000.0)]))
    faster = make_measurement(median_ns=5_000.0, utilisation=0.8)
    ingest_record(store, make_record(1, measurements=[faster], environment=OTHER_DEVICE))
    app = open_view("compare")
    assert "No runner measured both commits." in app.info[0].value
    app = open_view(
        "compare",
        machines="open",
        runner_a=make_environment().runner_class,
        runner_b=OTHER_DEVICE.runner_class,
    )
    said = texts(app)
    assert "No verdict: Example CPU and Another CPU are different machines" in said
    assert "0.5×" in said
    assert "50% → 80%" in said
    assert "slower" not in said


def test_a_machine_that_did_not_measure_a_commit_is_named(
    open_view: OpenView, store: Engine
) -> None:
    ingest_record(store, make_record(0))
    ingest_record(store, make_record(1))
    ingest_record(store, make_record(1, environment=OTHER_DEVICE))
    assert "Only one of the two was measured on Another CPU." in texts(open_view("compare"))


def test_a_branch_stands_for_its_newest_commit(open_view: OpenView, store: Engine) -> None:
    ingest_record(store, make_record(0))
    ingest_record(store, make_record(1, commit=make_commit(1, branch="faster")))
    app = open_view("compare", base="main", head="faster")
    assert address(app)["head"] == ["faster"]
    assert groups(markup(app)) == {"cannot say": 1}


def test_a_name_that_finds_nothing_says_so(open_view: OpenView, store: Engine) -> None:
    for number in range(2):
        ingest_record(store, make_record(number))
    app = open_view("compare", base="v9.9")
    assert "`v9.9`" in app.warning[0].value
    assert choice(app, "A, base").value == "v9.9"


def test_further_metrics_stand_in_the_unfolded_row(open_view: OpenView, store: Engine) -> None:
    for number in range(2):
        memory = MemoryUse(
            peak_allocated_bytes=2**20 * (number + 1), peak_reserved_bytes=2**22, allocation_count=1
        )
        ingest_record(store, make_record(number, measurements=[make_measurement(memory=memory)]))
    app = open_view(
        "compare",
        case="rms_norm/n_rows=64,n_cols=128/float32/fwd",
        implementation="torch",
        metric="median_ns",
    )
    assert "peak allocated memory: 1 MiB → 2 MiB" in texts(app)
