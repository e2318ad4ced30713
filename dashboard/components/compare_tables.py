"""A ↔ B in HTML: the matrix of runners, and the rows of one of them as a forest plot.

Text from records is escaped.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from roofwatch.ci.messages import count_of
from roofwatch.dashboard.case_labels import case_labels
from roofwatch.dashboard.charts.forest import ForestAxis, ForestRow
from roofwatch.dashboard.comparison import (
    ComparedRow,
    Geomean,
    Group,
    RunnerSummary,
    geomean_of,
)
from roofwatch.dashboard.components.page import View
from roofwatch.dashboard.components.table import HtmlColumn, grouped, html_table, scrolled
from roofwatch.dashboard.headline import once_a_commit
from roofwatch.dashboard.wording import (
    VERDICT_MARKS,
    current_attribute,
    device_text,
    escaped,
    headline_text,
    outcome_text,
    percent,
    shortened,
)
from roofwatch.model.verdict import Verdict

ROWS_AT_FIRST = 200
_SAID_ONCE_FROM = 5
_OPEN_KERNELS = 12
"""Kernels whose cases are unfolded at first."""
_ALWAYS_COUNTED = (Group.SLOWER, Group.FASTER, Group.CANNOT_SAY)
_CLASS_OF = {
    Group.SLOWER: "rw-slower",
    Group.BROKEN: "rw-slower",
    Group.FASTER: "rw-faster",
    Group.MENDED: "rw-faster",
}
_VERDICT_OF = {
    Group.SLOWER: Verdict.REGRESSED,
    Group.BROKEN: Verdict.REGRESSED,
    Group.FASTER: Verdict.IMPROVED,
    Group.MENDED: Verdict.IMPROVED,
    Group.CANNOT_SAY: Verdict.INCONCLUSIVE,
    Group.UNCHANGED: Verdict.UNCHANGED,
}


def matrix_html(
    view: View,
    summaries: Mapping[str, RunnerSummary],
    chosen: str,
    **choices: str,
) -> str:
    """Write one line per runner class.

    Args:
        view: The view.
        summaries: By runner class.
        chosen: The one whose rows are shown below.
        choices: Base and head, as the address names them.
    """
    # of the other groups, those that some runner has
    seen = Counter[Group](dict.fromkeys(_ALWAYS_COUNTED, 1))
    for summary in summaries.values():
        seen.update(summary.counts)

    def device_html(runner_class: str) -> str:
        name = f"<b>{escaped(device_text(runner_class))}</b>"
        return view.anchor(
            name,
            view.name,
            runner=runner_class,
            **choices,
        )

    def column(
        title: str,
        cell: Callable[[RunnerSummary], str],
        *,
        help_text: str = "",
        kind: str = "",
    ) -> HtmlColumn[str]:
        def cell_html(runner_class: str) -> str:
            content = cell(summaries[runner_class])
            # a phone has no heads above its cells
            return f'<span data-name="{title}">{content}</span>'

        return HtmlColumn(
            title,
            cell_html,
            f"number {kind}",
            help_text,
        )

    mean_help = (
        "Geometric mean of head / base over the cases, with its 95 % interval over the cases"
    )
    found_help = "Open change points of the history between the two commits, by case"
    columns = [
        HtmlColumn("Runner", device_html),
        column(
            "Geomean",
            lambda summary: _geomean_html(summary.geomean),
            help_text=mean_help,
            kind="mean",
        ),
    ]
    counted_groups = [group for group in Group if seen[group]]
    columns.extend(column(group, partial(_count_html, group)) for group in counted_groups)
    columns.append(column("Found by history", _found_html, help_text=found_help))
    has_roofs = any(summary.roofs is not None for summary in summaries.values())
    if has_roofs:
        roof_help = "Median case, share of what is achievable"
        columns.append(
            column(
                "Of achievable",
                _roofs_text,
                help_text=roof_help,
                kind="roof",
            )
        )

    def attributes(runner_class: str) -> str:
        current = current_attribute(is_current=runner_class == chosen)
        return f'{current} title="{escaped(runner_class)}"'

    return html_table(
        summaries,
        columns,
        kind="rw-matrix",
        attributes=attributes,
    )


def _count_html(group: Group, summary: RunnerSummary) -> str:
    count = summary.counts.get(group, 0)
    if not count:
        return '<span class="rw-soft">0</span>'
    name = _CLASS_OF.get(group, "")
    return f'<b class="{name}">{count:,}</b>'


def _geomean_html(geomean: Geomean | None) -> str:
    if geomean is None:
        return ""
    text = percent(geomean.change)
    if geomean.interval is not None:
        low, high = geomean.interval
        text += f' <span class="rw-soft">[{percent(low)}, {percent(high)}]</span>'
    return text


def _found_html(summary: RunnerSummary) -> str:
    marks: list[str] = []
    if summary.worse_found:
        symbol = VERDICT_MARKS[Verdict.REGRESSED].symbol
        marks.append(f'<span class="rw-slower">{symbol} {summary.worse_found}</span>')
    if summary.better_found:
        symbol = VERDICT_MARKS[Verdict.IMPROVED].symbol
        marks.append(f'<span class="rw-faster">{symbol} {summary.better_found}</span>')
    return " ".join(marks) or '<span class="rw-soft">0</span>'


def _roofs_text(summary: RunnerSummary) -> str:
    if summary.roofs is None:
        return ""
    base, head = summary.roofs
    return f"{base:.1%} → {head:.1%}"


# --- rows


def forest_html(
    view: View,
    rows: Sequence[ComparedRow],
    chosen: ComparedRow | None,
    **choices: str,
) -> str:
    """Write the rows of each group by kernel: a dot with its interval on one axis."""
    dots = [_forest_row(row) for row in rows if row.change is not None]
    forest = _Forest(
        view=view,
        axis=ForestAxis(dots),
        labels=case_labels(row.key for row in rows),
        chosen=chosen,
        choices=choices,
    )
    members_of = grouped(rows, lambda row: row.group)
    groups_html = ""
    for group in Group:
        if group in members_of:
            groups_html += forest.group_html(group, members_of[group])
    kind = "rw-groups"
    if chosen is not None:
        kind += " rw-narrow"
    elif not any(_shares_text(row) for row in rows):
        kind += " rw-roofless"
    return f'<div class="{kind}">{groups_html}</div>'


@dataclass(frozen=True, kw_only=True)
class _Forest:
    """What all rows share."""

    view: View
    axis: ForestAxis
    labels: Mapping[str, str]
    """Short names of cases."""
    chosen: ComparedRow | None
    choices: Mapping[str, str]

    def group_html(self, group: Group, members: Sequence[ComparedRow]) -> str:
        claim_counts = Counter(said_of(row) for row in members)
        common, count = claim_counts.most_common(1)[0]
        # what holds for most of many rows is said once
        if count <= max(_SAID_ONCE_FROM, len(members) / 2):
            common = ""
        first_rows = members[:ROWS_AT_FIRST]
        kernels = grouped(first_rows, lambda row: row.key.kernel)
        body: list[str] = []
        for number, (kernel, rows) in enumerate(kernels.items()):
            if len(rows) == 1:
                body.append(self._row_html(rows[0], common, is_single=True))
                continue
            # what did not change is looked for, not at
            is_open = group is not Group.UNCHANGED and number < _OPEN_KERNELS
            is_open = is_open or self.chosen in rows
            body.append(
                self._kernel_html(
                    kernel,
                    rows,
                    common,
                    is_open=is_open,
                )
            )
        further = ""
        if len(members) > ROWS_AT_FIRST:
            further = (
                f'<p class="rw-soft">The first {ROWS_AT_FIRST:,} of {len(members):,}; the files '
                "below have all.</p>"
            )
        name = _CLASS_OF.get(group, "rw-soft")
        heading = f'<h2 class="{name}">{group} · {len(members):,}</h2>'
        if common:
            exception = ""
            if count < len(members):
                exception = ", unless a row says more"
            heading += f'<p class="rw-soft">{escaped(common)}{exception}</p>'
        heads = _heads(self.axis)
        return f"{heading}{heads}{''.join(body)}{further}"

    def _kernel_html(
        self,
        kernel: str,
        rows: Sequence[ComparedRow],
        common: str,
        *,
        is_open: bool,
    ) -> str:
        body = ""
        for row in rows:
            body += self._row_html(row, common, is_single=False)
        geomean = geomean_of(rows)
        drawing = "<span></span>"
        change = ""
        if geomean is not None:
            # all rows of a kernel are in one group, so the first tells its verdict
            mean = ForestRow(
                geomean.change,
                geomean.interval,
                _VERDICT_OF[rows[0].group],
            )
            drawing = self.axis.row_html(mean)
            change = percent(geomean.change)
        opened = " open" if is_open else ""
        name = escaped(shortened(kernel))
        cases = count_of(len(rows), "case")
        return (
            f'<details{opened}><summary class="rw-compared"><b>{name}</b>'
            f"<span></span><span></span>{drawing}"
            f'<span class="number">{change}</span><span></span>'
            f'<span class="rw-soft">{cases}</span></summary>{body}</details>'
        )

    def _row_html(self, row: ComparedRow, common: str, *, is_single: bool) -> str:
        """Write a row; the only case of a kernel bears its name."""
        key = row.key
        parts = [self.labels[key.case_id], key.implementation]
        # a ratio and its time would look like the same row twice
        if not key.is_performance:
            parts.append(row.metric.title)
        named_parts = [part for part in parts if part]
        name = escaped(" · ".join(named_parts))
        kind = "rw-compared rw-case"
        if is_single:
            kernel = escaped(shortened(key.kernel))
            name = f"<b>{kernel}</b> {name}"
            kind = "rw-compared rw-case rw-single"
        drawing = "<span></span>"
        change = ""
        if row.change is not None:
            drawing = self.axis.row_html(_forest_row(row))
            change = percent(row.change)
        claim = said_of(row)
        # what is said above the group is not repeated
        if claim == common:
            claim = ""
        whole_claim = escaped(claim)
        said = escaped(claim.removeprefix(f"{common}; "))
        current = current_attribute(is_current=row is self.chosen)
        title = escaped(f"{key.case_id} {key.implementation} {row.metric.title}")
        base = _side_text(row, is_base=True)
        head = _side_text(row, is_base=False)
        shares = _shares_text(row)
        marks = _found_marks(row)
        cells = (
            f'<span class="rw-cut" title="{title}">{name}</span>'
            f'<span class="number">{base}</span>'
            f'<span class="number">{head}</span>'
            f'{drawing}<span class="number">{change}</span>'
            f'<span class="number">{shares}</span>'
            f'<span class="rw-cut rw-soft" title="{whole_claim}">{marks}{said}</span>'
        )
        return self.view.anchor(
            cells,
            self.view.name,
            attributes=f'class="{kind}"{current}',
            runner=key.runner_class,
            case=key.case_id,
            implementation=key.implementation,
            metric=key.metric,
            **self.choices,
        )


def _heads(axis: ForestAxis) -> str:
    return (
        '<div class="rw-compared rw-heads rw-soft"><span>Case</span><span class="number">A</span>'
        f'<span class="number">B</span>{axis.axis_html()}<span class="number">Change</span>'
        '<span class="number">Of achievable</span><span>What may be said</span></div>'
    )


def _forest_row(row: ComparedRow) -> ForestRow:
    return ForestRow(row.change or 0.0, row.interval, row.verdict)


def _side_text(row: ComparedRow, *, is_base: bool) -> str:
    base_outcome, head_outcome = row.outcomes
    value = row.head
    outcome = head_outcome
    if is_base:
        value = row.base
        outcome = base_outcome
    if value is not None:
        return escaped(row.metric.format(value))
    if outcome is None:
        return ""
    return escaped(outcome_text(outcome))


def _shares_text(row: ComparedRow) -> str:
    base, head = row.utilisations
    if base is None or head is None:
        return ""
    return f"{base:.0%} → {head:.0%}"


def _found_marks(row: ComparedRow) -> str:
    marks: list[str] = []
    for change in once_a_commit(row.change_points):
        mark = VERDICT_MARKS[change.verdict]
        name = "rw-faster"
        if change.verdict is Verdict.REGRESSED:
            name = "rw-slower"
        headline = headline_text(change)
        text = escaped(f"{mark.symbol} {headline} at {change.commit.short_sha}")
        title = escaped(change.evidence)
        marks.append(f'<b class="{name}" title="{title}">{text}</b> ')
    return "".join(marks)


def said_of(row: ComparedRow) -> str:
    """Write the claim, or why there is none."""
    text = row.refusal
    if not text and row.claim is not None:
        text = row.claim.text
    if not text:
        text = "another tool's value: only its history decides"
    if row.code_change.startswith("changed"):
        text += f"; machine code {row.code_change}"
    return text


def no_verdict_html(rows: Iterable[ComparedRow]) -> str:
    """Write ratios and shares of the roof of two machines, without a verdict."""
    on_both_sides = [row for row in rows if None not in (row.base, row.head)]
    table = html_table(
        sorted(on_both_sides, key=lambda row: row.key),
        [
            HtmlColumn("Case", lambda row: escaped(row.key.case_id)),
            HtmlColumn("Implementation", lambda row: escaped(row.key.implementation)),
            HtmlColumn(
                "A",
                lambda row: _side_text(row, is_base=True),
                "number",
            ),
            HtmlColumn(
                "B",
                lambda row: _side_text(row, is_base=False),
                "number",
            ),
            HtmlColumn("B / A", _ratio_text, "number"),
            HtmlColumn("Of achievable", _shares_text, "number"),
        ],
    )
    return scrolled(table)


def _ratio_text(row: ComparedRow) -> str:
    # nothing is a multiple of zero
    if not row.base or row.head is None:
        return ""
    return f"{row.head / row.base:.3g}×"
