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
    functions = [
        line
        for line in sides[1].source_lines
        if line.kernel == series.kernel and line.implementation == series.implementation
    ]
    if not functions:
        return ""
    # several cases share a function
    links = dict.fromkeys(
        view.sources.line_html(change.commit.sha, line.file, line.line) for line in functions
    )
    functions_html = ", ".join(list(links)[:_FUNCTIONS_SHOWN])
    return f"<p class=rw-soft>Source: {functions_html}</p>{_changes_html(view, change, functions)}"


def _changes_html(view: View, change: ChangePoint, functions: Sequence[SourceLine]) -> str:
    """Write the changed lines if this machine has the commits, else links to the forge."""
    base, head = change.previous_commit.sha, change.commit.sha
    files = list(dict.fromkeys(line.file for line in functions))
    # the files are those of the person who started the dashboard: only they see them
    diff = None
    if is_local():
        diff = changed_lines(Path.cwd(), base, head, files)
    if diff is not None:
        return diff_html(diff)
    links = [view.sources.changes_html(base, head, file) for file in files]
    files_html = ", ".join(link for link in links[:_FUNCTIONS_SHOWN] if link)
    if not files_html:
        return ""
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
            rows.append(f"<b>{escaped(line.rpartition(' b/')[2])}</b>")
        elif not line.startswith(("index ", "--- ", "+++ ")):
            kind = _KINDS.get(line[:1], "same")
            # indentation is part of a line of source
            text = escape(visible(line.expandtabs(4)))
            rows.append(f"<span class={kind}>{text or ' '}</span>")
    more = ""
    if len(rows) > _LINES_SHOWN:
        more = f"<p class=rw-soft>{len(rows) - _LINES_SHOWN} more lines: git diff shows them.</p>"
    body = "".join(rows[:_LINES_SHOWN])
    return f'<pre class=rw-diff tabindex=0 aria-label="Changed lines">{body}</pre>{more}'
