"""Ledger: one row for each commit, and the commit that was chosen."""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session
from streamlit.testing.v1 import AppTest

from roofwatch.ci.history.commit_rows import RangeSummary
from roofwatch.dashboard import access
from roofwatch.dashboard.components import decide as decide_component
from roofwatch.dashboard.components import source_changes
from roofwatch.dashboard.components.ledger_list import summary_html
from roofwatch.dashboard.components.page import SourceLinks
from roofwatch.dashboard.unfurl import preview_of
from roofwatch.dashboard.wording import code_span
from roofwatch.db.bisections import request_bisection
from roofwatch.db.ingest.ingest import ingest_record
from roofwatch.db.regressions.deciding import (
    DecisionKind,
    TriageDecision,
    apply_decision,
    find_regressions,
)
from roofwatch.db.regressions.decisions import Signature
from roofwatch.db.regressions.judgements import list_triaged, replace_regressions
from roofwatch.db.regressions.triage import regression_id
from roofwatch.model.history import Cause, Regression, Suspect
from roofwatch.model.machine import Outcome
from roofwatch.model.metrics import SHARE_OF_STEP
from roofwatch.model.triage import BisectionRange, TriageState
from roofwatch.model.verdict import Verdict
from tests.builders import (
    PROJECT,
    make_change_point,
    make_commit,
    make_commit_ref,
    make_environment,
    make_imported,
    make_measurement,
    make_record,
    make_regression,
    make_source_line,
    make_static_facts,
    sha_of,
)
from tests.dashboard.conftest import OpenView, forget_everything
from tests.dashboard.history import (
    BROKEN_AT,
    MATMUL,
    NOISE_AT,
    SLOWER_AT,
    SPILLS_AT,
    store_history,
)
from tests.dashboard.seen import address, markup, texts
from tests.databases import ingest_all, set_triage
from tests.git_repository import commit_file, git, make_repository

STEP = "transformer_training/B=1,T=128/float32/fwd"
LINKS = SourceLinks.of_project("https://github.com/{project}", "owner/kernels")


def body(app: AppTest) -> str:
    return "\n".join(part.proto.body for part in app.get("html"))


def rows(app: AppTest) -> list[str]:
    """Return the short shas of all rows, in the order shown."""
    return re.findall(r"<tr data-row.*?<code>([0-9a-f]{8})</code>", body(app))


def decide(store: Engine, regression: Regression, state: TriageState) -> None:
    set_triage(
        store,
        PROJECT,
        regression_id(regression),
        state,
        person="somebody",
        reason="a reason",
        actor="a test",
    )


def short(number: int) -> str:
    return make_commit_ref(number).short_sha


def test_settled_commits_are_folded_below_open_ones(
    open_view: OpenView, judged: list[Regression]
) -> None:
    app = open_view("ledger")
    assert rows(app)[:3] == [short(BROKEN_AT), short(SPILLS_AT), short(SLOWER_AT)]
    assert "Settled: 1" in [part.label for part in app.expander]
    assert short(NOISE_AT) not in rows(app)
    assert short(NOISE_AT) in rows(open_view("ledger", settled="open"))


def test_one_line_sums_up_the_range(open_view: OpenView, judged: list[Regression]) -> None:
    said = texts(open_view("ledger"))
    assert "30 days to 1 Mar 2026" in said
    assert "3 commits slower, 1 faster" in said


def test_a_mean_that_rounds_to_zero_has_neither_sign_nor_colour() -> None:
    summary = RangeSummary(
        slower_count=0,
        settled_count=0,
        faster_count=0,
        geomeans={"Example CPU, 4 threads": -0.0004, "NVIDIA H100": 0.004},
        roof_shares=None,
    )
    html = summary_html(summary, "30 days")

    assert "Example CPU 0.0%" in html
    assert "H100 <span class=rw-slower>+0.4%</span>" in html


def test_a_range_counts_the_open_commits_that_it_leaves_out(
    open_view: OpenView, store: Engine
) -> None:
    store_history(store)
    tagged = [(20, "v1"), (40, "v2")]
    for number, tag in tagged:
        ingest_record(store, make_record(number, commit=make_commit(number, tags=(tag,))))
    app = open_view("ledger", range="v1..v2")
    assert "Nothing changed in this range" in texts(app)
    assert "Still open from other times: 3" in " ".join(texts(app).split())


def test_a_row_answers_what_a_reader_asks_of_a_commit(
    open_view: OpenView, judged: list[Regression]
) -> None:
    said = texts(open_view("ledger"))
    for part in ("Test Author", "+42.0%", "✕ fails", "✓ yes", "rms_norm", "matmul"):
        assert part in said
    unconfirmed = re.search(rf"{short(BROKEN_AT)}.*?</tr>", body(open_view("ledger")), re.DOTALL)
    assert unconfirmed is not None
    # two of three decided alerts were real: (5 + 2) / (10 + 3)
    assert "54%" in unconfirmed[0]


def test_the_chosen_commit_explains_its_change(
    open_view: OpenView, judged: list[Regression]
) -> None:
    app = open_view("ledger", commit=sha_of(SLOWER_AT))
    said = texts(app)
    for part in (
        f"rms_norm +42.0% on Example CPU since {short(SLOWER_AT)}",
        "rms_norm became 42 % slower on 1 series",
        "code 90%",
        "the machine code differs on 1 of 1 targets",
        "Confirmed",
        f"roofwatch ab path/to/bench_file.py --base {short(SLOWER_AT - 1)}",
    ):
        assert part in said
    assert "rw-history" in markup(app), "the trend needs no script"
    assert not app.get("plotly_chart"), "no figure that loads megabytes before it is asked for"


def test_a_link_to_a_regression_of_an_earlier_version_chooses_its_row(
    open_view: OpenView, judged: list[Regression]
) -> None:
    app = open_view("ledger", regression=str(regression_id(judged[0])))
    assert judged[0].summary in texts(app)
    assert address(app)["regression"] == [str(regression_id(judged[0]))]


def test_a_short_link_without_a_project_opens_the_project_of_its_commit(
    open_view: OpenView, store: Engine
) -> None:
    store_history(store)
    ingest_record(store, make_record(0, project="a/first"))
    app = open_view("ledger", commit=short(SLOWER_AT))

    assert f"rms_norm +42.0% on Example CPU since {short(SLOWER_AT)}" in texts(app)
    assert (address(app)["project"], address(app)["commit"]) == ([PROJECT], [short(SLOWER_AT)])


@pytest.mark.parametrize("asked", [{"commit": "f" * 40}, {"regression": "gone"}])
def test_a_link_to_something_gone_keeps_its_address(
    open_view: OpenView, judged: list[Regression], asked: dict[str, str]
) -> None:
    app = open_view("ledger", **asked)
    assert "Nothing is stored about" in texts(app)
    (name,) = asked
    assert address(app)[name] == [asked[name]]
    assert len(rows(app)) == 4


def test_inconclusive_changes_are_a_group_of_their_own(open_view: OpenView, store: Engine) -> None:
    judged = store_history(store)
    moved = replace(judged[0], verdict=Verdict.INCONCLUSIVE, cause=Cause.CLOCK)
    replace_regressions(store, PROJECT, [moved, *judged[1:]])
    assert "Cannot say 1" in " ".join(texts(open_view("ledger")).split())


def test_an_expected_one_is_settled_but_an_acknowledged_one_stays(
    open_view: OpenView, store: Engine
) -> None:
    slower, _spills, broken, *_ = store_history(store)
    decide(store, slower, TriageState.EXPECTED)
    decide(store, broken, TriageState.ACKNOWLEDGED)
    app = open_view("ledger", commit=sha_of(BROKEN_AT))
    assert rows(app)[:2] == [short(BROKEN_AT), short(SPILLS_AT)]
    assert "acknowledged by somebody" in texts(app)


def test_too_few_values_are_a_suspicion_with_the_command_that_decides(
    open_view: OpenView, store: Engine
) -> None:
    for number, time_us in enumerate((1.0, 1.02, 10.1, 10.8, 10.4, 11.9)):
        measured = make_measurement(median_ns=1e3 * time_us)
        untimed = make_measurement(MATMUL, outcome=Outcome.UNSUPPORTED)
        ingest_record(store, make_record(number, measurements=[measured, untimed]))

    said = texts(open_view("ledger"))

    assert "unchanged" not in said
    assert "cannot say yet" in said
    assert "×10.5 ?" in said
    assert "roofwatch ab path/to/bench_file.py" in said
    assert "Nothing changed in this range" in said, "a suspicion is no change"


def test_each_commit_names_the_owner_of_its_kernel(
    open_view: OpenView, store: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Owners of rms_norm come from CODEOWNERS, those of matmul from the rules."""
    (tmp_path / "CODEOWNERS").write_text("/kernels/norm/ @ml/norms\n")
    (tmp_path / "alerts.toml").write_text(
        'codeowners = "CODEOWNERS"\n[[owners]]\nkernels = ["mat*"]\nowners = ["ada@example.com"]\n'
    )
    monkeypatch.setenv("ROOFWATCH_ALERT_RULES", str(tmp_path / "alerts.toml"))
    judged = store_history(store)
    ingest_record(
        store, make_record(9, source_lines=(make_source_line(file="kernels/norm/rms_norm.py"),))
    )
    replace_regressions(store, PROJECT, judged)
    assert "owner @ml/norms" in texts(open_view("ledger", commit=sha_of(SLOWER_AT)))
    assert "owner ada@example.com" in texts(open_view("ledger", commit=sha_of(SPILLS_AT)))


@pytest.mark.usefixtures("judged")
def test_the_ledger_works_without_readable_alert_rules(
    open_view: OpenView, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROOFWATCH_ALERT_RULES", str(tmp_path / "gone.toml"))
    assert len(rows(open_view("ledger"))) == 4


def test_the_cost_for_a_workload_follows_from_its_newest_profile_on_the_runner(
    open_view: OpenView, store: Engine
) -> None:
    for number, (share, runner) in enumerate([(0.5, {}), (0.1, {}), (0.9, {"thread_count": 64})]):
        value = make_imported(
            STEP,
            metric=f"{SHARE_OF_STEP}_rms_norm_kernel",
            statistic="value",
            unit="share",
            value=share,
        )
        facts = make_static_facts(implementation="torch")
        environment = make_environment(**runner)
        ingest_record(
            store,
            make_record(number, imported=[value], static_facts=[facts], environment=environment),
        )
    slower = make_regression(1, change_points=(make_change_point(1, standard_errors=20.0),))
    replace_regressions(store, PROJECT, [slower])
    assert f"predicted: +2.0% (+1.8% to +2.2%) of a step of {STEP} asv" in texts(
        open_view("ledger")
    )


def test_a_requested_bisection_is_shown(open_view: OpenView, store: Engine) -> None:
    slower = store_history(store)[0]
    series = slower.change_points[0].series
    asked = BisectionRange(
        PROJECT, series.case_id, series.implementation, sha_of(SLOWER_AT - 1), sha_of(SLOWER_AT)
    )
    with Session(store) as session, session.begin():
        request_bisection(
            session, asked, requested_by="somebody", regression_id=regression_id(slower)
        )
    app = open_view("ledger", commit=sha_of(SLOWER_AT), bisection="open")
    assert "○ waits for a runner" in texts(app)


def test_a_drift_accuses_no_commit(open_view: OpenView, store: Engine) -> None:
    ingest_all(store, make_record(0), make_record(1))
    drift = make_change_point(1, is_gradual=True, weekly_change=0.014)
    replace_regressions(store, PROJECT, [make_regression(1, change_points=(drift,))])
    said = texts(open_view("ledger"))
    assert "+1.4% a week" in said
    assert "↗ drift" in said


def test_a_range_accuses_no_commit(open_view: OpenView, store: Engine) -> None:
    ingest_all(store, make_record(1), make_record(5))
    base, head = make_commit_ref(1), make_commit_ref(5)
    point = make_change_point(5, previous_commit=base)
    replace_regressions(store, PROJECT, [make_regression(5, change_points=(point,))])
    app = open_view("ledger")
    assert "one of 4 commits after" in texts(app)
    assert head.subject not in body(app).partition("<tbody>")[2].partition("</tbody>")[0]


def test_every_series_of_a_commit_can_be_chosen(
    open_view: OpenView, judged: list[Regression]
) -> None:
    app = open_view("ledger", commit=sha_of(SPILLS_AT), every="open")
    assert "Every series: 6" in [part.label for part in app.expander]
    assert body(app).count("0 B → 96 B") >= 6


# --- decisions


def test_without_a_provider_a_browser_elsewhere_may_only_read(
    open_view: OpenView, judged: list[Regression]
) -> None:
    app = open_view("ledger")
    assert "Read-only: sign-in is not configured." in texts(app)
    assert "data-kind=confirm" not in markup(app)


@pytest.mark.parametrize(
    ("headers", "may_decide"),
    [
        ({"Host": "127.0.0.1:8501"}, True),
        ({"Host": "localhost:8501"}, True),
        ({"Host": "[::1]:8501"}, True),
        ({"Host": "bench.example.com"}, False),
        ({"Host": "127.0.0.1:8501", "X-Forwarded-For": "10.0.0.7"}, False),
        ({}, False),
    ],
)
def test_git_says_who_decides_on_loopback_without_a_proxy(
    monkeypatch: pytest.MonkeyPatch, headers: dict[str, str], *, may_decide: bool
) -> None:
    class Context:
        pass

    Context.headers = headers  # type: ignore[attr-defined]
    monkeypatch.setattr("streamlit.context", Context)
    monkeypatch.setenv(access.LOCAL_VARIABLE, "1")
    me = Signature(person="me@example.com", actor="git:me@example.com")
    monkeypatch.setattr(access, "git_signature", lambda: me)
    assert (access.signature_here(PROJECT)[0] == me) is may_decide
    monkeypatch.setenv(access.LOCAL_VARIABLE, "0")
    assert access.signature_here(PROJECT)[0] is None


def test_those_who_may_decide_have_buttons_signed_with_their_address(
    open_view: OpenView, store: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_history(store)
    me = Signature(person="ada@example.com", actor="git:ada@example.com")
    monkeypatch.setattr(decide_component, "signature_here", lambda _: (me, ""))
    html = markup(open_view("ledger", commit=sha_of(SLOWER_AT)))
    for kind in ("confirm", "assign", "issue", "expected", "not-real", "snooze", "undo"):
        assert f"data-kind={kind} " in html
    assert "as ada@example.com" in html


def test_marked_rows_are_decided_together(
    open_view: OpenView, store: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_history(store)
    me = Signature(person="ada@example.com", actor="git:ada@example.com")
    monkeypatch.setattr(decide_component, "signature_here", lambda _: (me, ""))
    marked = [f"{sha_of(number)} regressed" for number in (BROKEN_AT, SPILLS_AT)]
    app = open_view("ledger", commit=sha_of(SLOWER_AT), marked=[*marked, "gone regressed"])

    assert body(app).count(" checked>") == 2
    assert "2 marked" in texts(app)
    assert '<option value="">all 2 marked</option><option value="commit">only' in markup(app)
    assert "gone regressed" in " ".join(part.value for part in app.warning)
    assert address(app)["marked"] == marked


def test_the_ledger_shows_how_far_a_pair_is_that_somebody_asked_for(
    open_view: OpenView, store: Engine
) -> None:
    store_history(store)
    me = Signature(person="ada@example.com", actor="git:ada@example.com")
    with Session(store) as session, session.begin():
        (slower,) = find_regressions(list_triaged(session, PROJECT), sha_of(SLOWER_AT))
        confirm = TriageDecision(kind=DecisionKind.CONFIRM)
        apply_decision(session, PROJECT, slower, confirm, me)

    def said_of(**columns: str) -> tuple[str, str]:
        changes = ", ".join(f"{name} = {value}" for name, value in columns.items())
        if changes:
            with store.begin() as connection:
                connection.execute(text(f"UPDATE agenda_job SET {changes}"))
        forget_everything()
        app = open_view("ledger", commit=sha_of(SLOWER_AT))
        row = re.search(rf"{short(SLOWER_AT)}.*?</tr>", body(app), re.DOTALL)
        assert row is not None
        return row[0], texts(app)

    row, page = said_of()
    assert "○ asked" in row
    assert "waits for a runner" in page
    holder = "'00000000-0000-0000-0000-000000000001'"
    row, page = said_of(claim_id=holder, leased_until="now() + interval '1 hour'")
    assert "◐ running" in row
    assert "a runner is measuring the pair" in page
    row, page = said_of(finished_at="now()", spent_s="90")
    assert "asked" not in row
    assert "✓ measured just now in 1.5 min" in page
    _, page = said_of(note="'the base does not build'")
    assert "could not be measured, just now: the base does not build" in page


# --- source


@pytest.fixture
def changed_kernel(store: Engine, tmp_path: Path) -> Path:
    """A repository whose second commit made a kernel slower."""
    folder = make_repository(tmp_path / "repository")
    (folder / "kernels").mkdir()
    shas = [
        commit_file(folder, "kernels/rms_norm.py", f"def rms_norm_torch(x):\n    {body}\n")
        for body in ("return x * <1>", "return x * 2")
    ]
    commits = [make_commit(number, sha=sha) for number, sha in enumerate(shas)]
    for number, commit in enumerate(commits):
        measured = make_measurement(median_ns=10_000.0 + 2_000 * number)
        record = make_record(
            number, commit=commit, measurements=[measured], source_lines=(make_source_line(),)
        )
        ingest_record(store, record)
    base, head = (
        replace(make_commit_ref(number), sha=commit.sha) for number, commit in enumerate(commits)
    )
    point = make_change_point(1, commit=head, previous_commit=base)
    replace_regressions(store, PROJECT, [make_regression(1, commit=head, change_points=(point,))])
    return folder


def test_changed_lines_of_the_source_are_shown_where_the_repository_is_at_hand(
    open_view: OpenView, changed_kernel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(changed_kernel)
    monkeypatch.setattr(source_changes, "is_local", lambda: True)
    html = body(open_view("ledger"))
    diff = html.partition("<pre class=rw-diff")[2].partition("</pre>")[0]

    assert "<b>kernels/rms_norm.py</b>" in diff
    assert "<span class=removed>-    return x * &lt;1&gt;</span>" in diff
    assert "<span class=added>+    return x * 2</span>" in diff


@pytest.mark.usefixtures("changed_kernel")
def test_elsewhere_changed_lines_are_a_link_to_the_forge(
    open_view: OpenView, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROOFWATCH_REPOSITORY_URL", "https://github.com/{project}")
    html = body(open_view("ledger"))
    part = hashlib.sha256(b"kernels/rms_norm.py").hexdigest()

    assert "<pre class=rw-diff" not in html
    assert re.search(rf'/compare/[0-9a-f]{{40}}\.\.\.[0-9a-f]{{40}}#diff-{part}"', html)


def test_unchanged_files_say_that_the_change_is_elsewhere(changed_kernel: Path) -> None:
    head = git(changed_kernel, "rev-parse", "HEAD")
    assert source_changes.changed_lines(changed_kernel, head, head, ["kernels/rms_norm.py"]) == []
    assert "the change is elsewhere" in source_changes.diff_html([])


@pytest.mark.parametrize("file", ["../outside.py", "/etc/passwd"])
def test_a_file_outside_the_repository_has_no_changes(changed_kernel: Path, file: str) -> None:
    head = git(changed_kernel, "rev-parse", "HEAD")
    assert not source_changes.changed_lines(changed_kernel, head, head, [file])


def test_a_commit_that_is_not_here_has_no_changes(changed_kernel: Path) -> None:
    head = git(changed_kernel, "rev-parse", "HEAD")
    assert source_changes.changed_lines(changed_kernel, sha_of(1), head, ["a.py"]) is None


# --- links


def test_a_link_unfurls_as_what_became_slower(
    open_view: OpenView, judged: list[Regression]
) -> None:
    title, about = preview_of("/", {"project": PROJECT, "commit": sha_of(SLOWER_AT)})
    assert title == f"rms_norm +42.0% on Example CPU since {short(SLOWER_AT)}"
    assert about == "rms_norm became 42 % slower on 1 series"
    assert preview_of("/", {"commit": sha_of(SLOWER_AT)[:8], "verdict": "regressed"})[0] == title
    assert preview_of("/roof", {"project": PROJECT})[0] == f"Roof · {PROJECT}"
    assert preview_of("/", {"project": PROJECT, "commit": "gone"})[0] == f"Ledger · {PROJECT}"


def test_a_commit_links_to_the_repository() -> None:
    commit = make_commit_ref()
    url = f"https://github.com/owner/kernels/commit/{commit.sha}"
    assert LINKS.commit_html(commit) == (
        f'<a href="{url}" target="_blank"><code>{commit.short_sha}</code></a>'
    )
    assert SourceLinks(None).commit_html(commit) == f"<code>{commit.short_sha}</code>"


def test_a_line_links_to_the_repository() -> None:
    url = "https://github.com/owner/kernels/blob/abc/kernels/soft%20max.py#L12"
    assert f'href="{url}"' in LINKS.line_html("abc", "kernels/soft max.py", 12)


@pytest.mark.parametrize(
    "file", ["../../evil/repo/blob/x.py", "a/../../x.py", "/etc/passwd", "a\\..\\x.py"]
)
def test_a_file_outside_the_repository_has_no_link(file: str) -> None:
    assert "href" not in LINKS.line_html("abc", file, 1)


def test_text_from_records_cannot_end_a_link() -> None:
    html = LINKS.line_html("abc", 'a"><script>x</script>', 1)
    assert "<script" not in html
    assert code_span("a`b") == "`` a`b ``"


def test_a_commit_is_a_link_to_its_forge(
    open_view: OpenView, judged: list[Regression], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROOFWATCH_REPOSITORY_URL", "https://git.example.com/{project}")
    sha = sha_of(SLOWER_AT)
    url = f"https://git.example.com/example/project/commit/{sha}"
    assert f'href="{url}"' in body(open_view("ledger", commit=sha))


def test_a_name_written_from_right_to_left_leaves_the_date_next_to_it_alone(
    open_view: OpenView, judged: list[Regression]
) -> None:
    html = body(open_view("ledger", commit=sha_of(SLOWER_AT)))
    assert f"<bdi>{judged[0].commit.author}</bdi> · 2026-" in html


def test_suspects_are_listed_with_their_weights(open_view: OpenView, store: Engine) -> None:
    judged = store_history(store)
    suspects = (
        Suspect(Cause.CODE, 0.8, "the machine code differs"),
        Suspect(Cause.CLOCK, 0.19, "the clock fell"),
        Suspect(Cause.UNKNOWN, 0.01, "unknown cause"),
    )
    replace_regressions(store, PROJECT, [replace(judged[0], suspects=suspects), *judged[1:]])
    said = texts(open_view("ledger", commit=sha_of(SLOWER_AT)))
    assert "code 80%" in said
    assert "clock 19%" in said
    assert "unknown 1%" not in said, "what is all but excluded takes no place"
