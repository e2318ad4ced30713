"""Where the source of a kernel is, and which of its lines a commit changed."""

from collections.abc import Sequence
from html import escape
from pathlib import Path

from roofwatch.ci.messages import visible
from roofwatch.collector.git import find_repository, run_git
from roofwatch.dashboard import data
from roofwatch.dashboard.access import is_local
from roofwatch.dashboard.components.page import View
from roofwatch.dashboard.wording import escaped
from roofwatch.model.errors import GitError
from roofwatch.model.history import ChangePoint
from roofwatch.model.source_line import SourceLine

_FUNCTIONS_SHOWN = 6
_LINES_SHOWN = 40
_CONTEXT_LINES = 2
_KINDS = {"+": "added", "-": "removed", "@": "place"}


def source_html(view: View, change: ChangePoint) -> str:
    """Write the functions of a kernel with links, and what changed in their files."""
    sides = data.read_sides(change)
    if sides is None:
        return ""
    series = change.series
    _, head = sides
    functions: list[SourceLine] = []
    for line in head.source_lines:
        is_same_kernel = line.kernel == series.kernel
        if is_same_kernel and line.implementation == series.implementation:
            functions.append(line)
    if not functions:
        return ""
    links: list[str] = []
    for line in functions:
        link = view.sources.line_html(
            change.commit.sha,
            line.file,
            line.line,
        )
        # several cases share a function
        if link not in links:
            links.append(link)
    functions_html = ", ".join(links[:_FUNCTIONS_SHOWN])
    changes_html = _changes_html(view, change, functions)
    return f"<p class=rw-soft>Source: {functions_html}</p>{changes_html}"


def _changes_html(
    view: View,
    change: ChangePoint,
    functions: Sequence[SourceLine],
) -> str:
    """Write the changed lines if this machine has the commits, else links to the forge."""
    base = change.previous_commit.sha
    head = change.commit.sha
    files = list(dict.fromkeys(line.file for line in functions))
    # the files are those of the person who started the dashboard: only they see them
    diff = None
    if is_local():
        diff = changed_lines(Path.cwd(), base, head, files)
    if diff is not None:
        return diff_html(diff)
    links: list[str] = []
    for file in files[:_FUNCTIONS_SHOWN]:
        link = view.sources.changes_html(base, head, file)
        if link:
            links.append(link)
    if not links:
        return ""
    files_html = ", ".join(links)
    return f"<p class=rw-soft>Changed lines: {files_html}</p>"


def changed_lines(
    folder: Path,
    base: str,
    head: str,
    files: Sequence[str],
) -> list[str] | None:
    """Return a unified diff of files between two commits; None if no repository here has both."""
    try:
        repository = find_repository(folder)
        if repository is None:
            return None
        diff = run_git(
            repository,
            "diff",
            "--no-ext-diff",
            "--no-textconv",
            "--no-color",
            f"--unified={_CONTEXT_LINES}",
            "--end-of-options",
            base,
            head,
            "--",
            *files,
            # names come from a record
            extra_environment={"GIT_LITERAL_PATHSPECS": "1"},
        )
    except GitError:
        return None
    return diff.splitlines()


def diff_html(lines: Sequence[str]) -> str:
    """Write a unified diff, with the names of the files as headings."""
    if not lines:
        return (
            "<p class=rw-soft>The files of these functions are the same in both commits: the "
            "change is elsewhere.</p>"
        )
    rows: list[str] = []
    for line in lines:
        # the path after the last ` b/`, which is that of the head
        if line.startswith("diff "):
            _, _, path = line.rpartition(" b/")
            rows.append(f"<b>{escaped(path)}</b>")
        elif not line.startswith(("index ", "--- ", "+++ ")):
            kind = _KINDS.get(line[:1], "same")
            # indentation is part of a line of source
            text = escape(visible(line.expandtabs(4))) or " "
            rows.append(f"<span class={kind}>{text}</span>")
    more_count = len(rows) - _LINES_SHOWN
    more = ""
    if more_count > 0:
        more = f"<p class=rw-soft>{more_count} more lines: git diff shows them.</p>"
    body = "".join(rows[:_LINES_SHOWN])
    return f'<pre class=rw-diff tabindex=0 aria-label="Changed lines">{body}</pre>{more}'
