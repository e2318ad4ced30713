"""Where people read the code: addresses of commits and of lines, where the settings say on which site. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from urllib.parse import quote


@dataclass(frozen=True)
class SourceLinks:
    """Of one project. GitHub's addresses, which GitLab and Gitea understand too."""

    repository_url: str | None
    """None where nobody said; then nothing has an address."""

    @classmethod
    def of_project(cls, pattern: str | None, project: str) -> SourceLinks:
        """From a setting such as `https://github.com/{project}`."""
        return cls(None if pattern is None else pattern.rstrip("/").replace("{project}", quote(project)))

    def commit(self, sha: str) -> str | None:
        return None if self.repository_url is None else f"{self.repository_url}/commit/{quote(sha)}"

    def line(self, sha: str, file: str, line: int) -> str | None:
        """None too for a path that leads out of the repository: a record may say anything."""
        parts = PurePosixPath(file).parts
        if self.repository_url is None or ".." in parts or file.startswith("/") or "\\" in file:
            return None
        return f"{self.repository_url}/blob/{quote(sha)}/{quote('/'.join(parts))}#L{line}"


def linked(markdown: str, address: str | None) -> str:
    """Markdown of ours as a link, where there is an address."""
    return markdown if address is None else f"[{markdown}]({address})"
