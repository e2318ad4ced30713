"""Commands that decide a change, which a reader copies."""

import shlex

from roofwatch.dashboard.wording import escaped
from roofwatch.model.history import CommitRef

BENCH_FILE = "path/to/bench_file.py"
NO_COMMAND = (
    "<p class=rw-soft>Another tool measured it: no command here can repeat it. Measure the same "
    "case with roofwatch init and roofwatch run to get pairs.</p>"
)


def pair_command(base: CommitRef, head: CommitRef, **options: str) -> str:
    """Return the command that measures both commits in one job, with further options such as
    `kernel`.
    """
    words = ["roofwatch", "ab", BENCH_FILE, "--base", base.short_sha, "--head", head.short_sha]
    for name, value in options.items():
        words += [f"--{name}", value]
    return shlex.join(words)


def command_html(command: str) -> str:
    """Write a command that can be copied in whole."""
    return f"<code class=rw-code tabindex=0>{escaped(command)}</code>"
