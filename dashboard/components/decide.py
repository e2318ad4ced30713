"""Decisions about the regressions of a commit: the buttons, and what they do."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import streamlit as st

from roofwatch.ci.history.commit_rows import CommitEntry
from roofwatch.ci.messages import count_of
from roofwatch.dashboard import data
from roofwatch.dashboard.access import NotAllowedError, signature_here
from roofwatch.dashboard.headline import kernel_text
from roofwatch.dashboard.wording import code_span, escaped, shortened
from roofwatch.db.errors import StoreError
from roofwatch.db.regressions.deciding import DecisionKind, TriageDecision
from roofwatch.model.metrics import TIME
from roofwatch.model.triage import TriagedRegression

_SCRIPT = Path(__file__).parents[1] / "assets" / "decide.js"
_decide = st.components.v2.component(
    "decide",
    html="<div class=rw-decide></div>",
    js=_SCRIPT.read_text(encoding="utf-8"),
    isolate_styles=False,
)
_KEY = "decide"
_LONGEST_TEXT = 500
_ONLY_COMMIT = "commit"
"""Choice of the commit that is open while others are marked."""
_OUTCOMES_NAMED = 3
"""Decisions at once up to which each names its kernel."""


@dataclass(frozen=True)
class _Button:
    kind: DecisionKind
    text: str
    letter: str
    title: str
    value: str | None = None
    """What to write, if it needs a value."""
    start: str = ""
    """A value to begin with."""
    reason: str | None = None
    """`required` or `optional`, if it takes a reason."""

    @property
    def html(self) -> str:
        fields = {
            "value": self.value,
            "start": self.start or None,
            "reason": self.reason,
        }
        data_fields = ""
        for name, value in fields.items():
            if value is not None:
                data_fields += f' data-{name}="{escape(value)}"'
        # the letter that presses it is underlined
        text = escape(self.text).replace(self.letter, f"<u>{self.letter}</u>", 1)
        letter = self.letter.lower()
        title = escape(self.title)
        return (
            f'<button type=button class=rw-button data-kind={self.kind} data-letter="{letter}" '
            f'title="{title}"{data_fields}>{text}</button>'
        )


_CONFIRM = _Button(
    DecisionKind.CONFIRM,
    "Confirm now",
    "C",
    "Measure the pair as the next job",
)


def _buttons(person: str) -> Sequence[_Button]:
    return (
        _Button(
            DecisionKind.ASSIGN,
            "Assign",
            "A",
            "Who works on it",
            value="name or address",
            start=person,
        ),
        _Button(
            DecisionKind.ACKNOWLEDGE,
            "On it",
            "O",
            "Someone works on it",
            reason="required",
        ),
        _Button(
            DecisionKind.ISSUE,
            "Issue",
            "I",
            "Link an issue",
            value="https://…",
        ),
        _Button(
            DecisionKind.EXPECTED,
            "Expected",
            "E",
            "Real and accepted",
            reason="required",
        ),
        _Button(
            DecisionKind.NOT_REAL,
            "Not real",
            "N",
            "No regression",
            reason="required",
        ),
        _Button(
            DecisionKind.SNOOZE,
            "Snooze",
            "S",
            "Ask nobody before",
            value="7d, 2026-12-24 or a commit",
            start="7d",
            reason="optional",
        ),
        _Button(
            DecisionKind.FIXED,
            "Fixed",
            "F",
            "Repaired",
            reason="required",
        ),
        _Button(
            DecisionKind.UNDO,
            "Undo",
            "U",
            "Undo the newest decision",
        ),
    )


def show_decisions(
    project: str,
    row: CommitEntry,
    marked: Sequence[CommitEntry],
) -> None:
    """Show the buttons, or why there are none, and carry out what was pressed: about all marked
    rows, else all regressions of a row, or one.
    """
    message = st.session_state.pop(f"{_KEY}:message", None)
    if message is not None:
        st.html(f"<p class=rw-note role=status>{escaped(message)}</p>")
    failure = st.session_state.pop(f"{_KEY}:failure", None)
    if failure is not None:
        st.warning(code_span(failure))
    signature, why_not = signature_here(project)
    # decisions are stored in a database, which is not open here
    if data.reads_through_server():
        signature = None
        why_not = "Read-only: this dashboard reads through a server; use its triage route."
    if signature is None:
        st.html(f"<p class=rw-soft>{escape(why_not)}</p>")
        return

    marks = "|".join(sorted(st.query_params.get_all("marked")))

    def carry_out() -> None:
        fields = st.session_state[_KEY]["decision"]
        # the component was drawn again, and nothing was pressed
        if fields is None:
            return
        # another page may be drawn while somebody presses a button of this one
        if fields.get("row") != row.key:
            message = "Another commit was opened; press the button again."
            st.session_state[f"{_KEY}:failure"] = message
        elif fields.get("marked") != marks:
            message = "Other commits are marked now; press the button again."
            st.session_state[f"{_KEY}:failure"] = message
        else:
            _carry_out(project, row, marked, fields)

    html = _form_html(row, marked, marks, signature.person)
    _decide(
        key=_KEY,
        data={"html": html},
        on_decision_change=carry_out,
    )


def _form_html(
    row: CommitEntry,
    marked: Sequence[CommitEntry],
    marks: str,
    person: str,
) -> str:
    choices = _choices(row, marked)
    which = ""
    if len(choices) > 1:
        options = ""
        for value, text in choices.items():
            options += f'<option value="{value}">{escaped(text)}</option>'
        which = f'<select name=part aria-label="Which regressions">{options}</select>'
    buttons = "".join(button.html for button in _buttons(person))
    parts = _parts_of("", row, marked)
    # no runner can repeat what another tool measured
    if any(_is_repeatable(part) for part in parts):
        buttons = _CONFIRM.html + buttons
    row_key = escape(row.key)
    marked_keys = escape(marks)
    name = escaped(shortened(person))
    return (
        f'<form><input type=hidden name=row value="{row_key}">'
        f'<input type=hidden name=marked value="{marked_keys}">'
        f"<div class=buttons>{buttons}{which}</div><div class=line hidden><b></b>"
        f"<input name=value maxlength={_LONGEST_TEXT} aria-label=Value>"
        f"<input name=reason maxlength={_LONGEST_TEXT} placeholder=Reason aria-label=Reason>"
        f"<button class=rw-button>OK</button>"
        f"<span class=rw-soft>as {name}</span></div></form>"
    )


def _choices(row: CommitEntry, marked: Sequence[CommitEntry]) -> dict[str, str]:
    """Return what a decision may be about, by its value in the form; the first is chosen."""
    choices: dict[str, str] = {}
    if marked:
        choices[""] = f"all {len(marked)} marked"
        choices[_ONLY_COMMIT] = f"only {row.commit.short_sha}"
    else:
        choices[""] = f"all {len(row.parts)} of this commit"
    if len(row.parts) > 1:
        for part in row.parts:
            kernel = shortened(kernel_text(part.regression.kernel))
            choices[part.regression_id] = f"only {kernel}"
    return choices


def _parts_of(
    choice: object,
    row: CommitEntry,
    marked: Sequence[CommitEntry],
) -> list[TriagedRegression]:
    """Return the regressions that a choice of the form names."""
    # without a choice the marks count, then the whole commit
    if choice in (None, "") and marked:
        parts: list[TriagedRegression] = []
        for marked_row in marked:
            parts.extend(marked_row.parts)
        return parts
    if choice in (None, "", _ONLY_COMMIT):
        return list(row.parts)
    return [part for part in row.parts if part.regression_id == choice]


def _is_repeatable(part: TriagedRegression) -> bool:
    changes = part.regression.change_points
    return any(point.series.metric == TIME.key for point in changes)


def _carry_out(
    project: str,
    row: CommitEntry,
    marked: Sequence[CommitEntry],
    fields: Mapping[str, object],
) -> None:
    """Store a decision about each part; one that changed meanwhile keeps its state."""
    signature, why_not = signature_here(project)
    if signature is None:
        st.session_state[f"{_KEY}:failure"] = why_not
        return
    kind = str(fields.get("kind"))
    value = str(fields.get("value") or "")
    reason = str(fields.get("reason") or "")
    try:
        decision = TriageDecision(
            kind=DecisionKind(kind),
            value=value[:_LONGEST_TEXT],
            reason=reason[:_LONGEST_TEXT],
        )
    except ValueError:
        return
    outcomes: list[tuple[str, str]] = []
    decided_parts = _parts_of(fields.get("part"), row, marked)
    for part in decided_parts:
        try:
            outcome = data.decide(project, part, decision, signature)
        except (NotAllowedError, StoreError) as error:
            st.session_state[f"{_KEY}:failure"] = str(error)
        else:
            kernel = kernel_text(part.regression.kernel)
            outcomes.append((kernel, outcome))
    if outcomes:
        st.session_state[f"{_KEY}:message"] = _message_of(outcomes)
        # the commit stays selected, although it may be settled now
        st.query_params["commit"] = row.commit.sha
        st.query_params["verdict"] = str(row.verdict)


def _message_of(outcomes: Sequence[tuple[str, str]]) -> str:
    """Write what was decided, by kernel, or for many by what became of them."""
    if len(outcomes) <= _OUTCOMES_NAMED:
        return "; ".join(f"{kernel}: {outcome}" for kernel, outcome in outcomes)
    # forty kernels in a sentence are no message
    counts = Counter(outcome for _, outcome in outcomes)
    parts: list[str] = []
    for outcome, count in counts.items():
        regressions = count_of(count, "regression")
        parts.append(f"{regressions}: {outcome}")
    return "; ".join(parts)
