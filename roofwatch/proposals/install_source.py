"""Where this roofwatch was installed from, for files that name it: a repository and a commit."""

import json
import re
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from roofwatch import __version__
from roofwatch.collector.git import find_repository, run_git
from roofwatch.model.errors import GitError, SuiteError

_ADDRESS = re.compile(
    r"(?:git\+)?(?:https?://(?:[^/@]*@)?|ssh://git@|git@)"
    r"(?P<host>[\w.-]+)[/:](?P<name>[\w.-]+/[\w.-]+?)(?:\.git)?/?"
)
_NAMED = re.compile(r"(?P<name>[\w-][\w.-]*/[\w.-]+)@(?P<commit>[0-9a-f]{40})")
_GITHUB = "github.com"


@dataclass(frozen=True)
class InstallSource:
    """A commit of roofwatch, or a release if the repository is unknown."""

    repository: str = ""
    """`owner/name`; empty for a release of the package index."""
    commit: str = ""
    host: str = _GITHUB

    def requirement(self, extra: str = "") -> str:
        """Return what `pip install` needs, in quotes."""
        name = f"roofwatch[{extra}]" if extra else "roofwatch"
        if not self.repository:
            return f"'{name}=={__version__}'"
        return f"'{name} @ git+https://{self.host}/{self.repository}@{self.commit}'"


def parse_source(text: str) -> InstallSource:
    """Read `OWNER/NAME@SHA`.

    Raises:
        SuiteError: it has another form; a branch or tag may move.
    """
    match = _NAMED.fullmatch(text)
    if match is None:
        raise SuiteError(f"--from {text[:100]!r}: write OWNER/NAME@SHA, with all 40 digits")
    return InstallSource(match["name"], match["commit"])


def install_source() -> InstallSource | None:
    """Determine the repository and commit that pip installed, as PEP 610 records them.

    Of a checkout, they are its remote `origin` and its commit; None if it has no remote.
    """
    try:
        text = distribution("roofwatch").read_text("direct_url.json")
    except PackageNotFoundError:
        text = None
    if text is None:
        return InstallSource()
    return source_of(json.loads(text))


def source_of(direct_url: dict[str, Any]) -> InstallSource | None:
    """Read the document of PEP 610; None if it names a folder whose repository is unknown."""
    address = str(direct_url.get("url", ""))
    commit = str(direct_url.get("vcs_info", {}).get("commit_id", ""))
    # an editable install names its folder, and git knows the rest
    if address.startswith("file://"):
        folder = find_repository(Path(address.removeprefix("file://")))
        try:
            if folder is not None:
                commit = run_git(folder, "rev-parse", "HEAD").strip()
                address = run_git(folder, "config", "--get", "remote.origin.url").strip()
        except GitError:
            address = ""
    # without a commit the jobs would follow a branch
    match = _ADDRESS.fullmatch(address)
    if match is None or not commit:
        return None
    return InstallSource(match["name"], commit, match["host"])
