"""Names of commits: releases, branches, shas, numbers of pull requests, and dates."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import cached_property

from roofwatch.dashboard.wording import date_written, shortened
from roofwatch.model.history import CommitRef, MeasuredCommit
from roofwatch.model.stored_results import TaggedCommit

_LISTED_COMMITS = 300
"""Newest commits to choose from; others are found by what is typed."""


@dataclass(frozen=True)
class Revisions:
    """What the measured commits of a project are called."""

    commits: Sequence[MeasuredCommit]
    """By place on the branch; those that left it first."""
    releases: Sequence[TaggedCommit]
    branches: Mapping[str, CommitRef]
    """Newest measured commit by branch."""
    zone: tzinfo = UTC

    @cached_property
    def _names(self) -> dict[str, CommitRef]:
        """Commits by the names that are offered, the likeliest first."""
        # newest release first: it is the likeliest base
        names: dict[str, CommitRef] = {}
        for release in reversed(self.releases):
            names[release.name] = release.commit
        for branch, commit in self.branches.items():
            # a branch may bear the name of a release, which was there first
            names.setdefault(branch, commit)
        listed = self.commits[-_LISTED_COMMITS:]
        for commit in reversed(listed):
            names[commit.sha] = commit
        return names

    @property
    def names(self) -> list[str]:
        return list(self._names)

    def title(self, name: str) -> str:
        """Write a name with what one would search for: sha, date, subject and author."""
        commit = self.find(name)
        if commit is None:
            return shortened(name)
        moment = date_written(commit.committed_at, self.zone)
        subject = shortened(commit.subject, length=60)
        first = commit.short_sha
        # a release or branch says more than the sha behind it
        if name != commit.sha:
            first = f"{name}  {first}"
        first = shortened(first, length=60)
        return f"{first}  {moment}  {subject}  {commit.author}"

    def find(self, name: str) -> CommitRef | None:
        """Find a commit by a release, a branch, its sha or the first digits of it, the number of
        its pull request, or a date, at whose end it was the newest.
        """
        name = name.strip()
        if name in self._names:
            return self._names[name]
        # a date has only digits and dashes, so that no sha is meant
        day = _day_of(name)
        if day is not None:
            midnight = datetime.combine(day, time.min, self.zone)
            return self._newest_until(midnight)
        if re.fullmatch(r"[#!]\d+", name):
            # `#12` must not find `#123`
            number = name[1:]
            pattern = re.compile(rf"[#!]{number}\b")
            # the newest that names the number
            for commit in reversed(self.commits):
                if pattern.search(commit.subject):
                    return commit
            return None
        if re.fullmatch(r"[0-9a-f]{4,64}", name):
            matches = [commit for commit in self.commits if commit.sha.startswith(name)]
            # a beginning that two commits share names neither
            if len(matches) == 1:
                return matches[0]
            return None
        return None

    def _newest_until(self, midnight: datetime) -> CommitRef | None:
        end = midnight + timedelta(days=1)
        for commit in reversed(self.commits):
            if commit.committed_at < end and not commit.is_unreachable:
                return commit
        return None

    def defaults(self) -> tuple[str, str] | None:
        """Return the newest two releases, else the newest two commits; None without two."""
        if len(self.releases) > 1:
            base_release, head_release = self.releases[-2:]
            return base_release.name, head_release.name
        if len(self.commits) > 1:
            base, head = self.commits[-2:]
            return base.sha, head.sha
        return None


def branches_of(
    commits: Sequence[MeasuredCommit],
    shas_by_branch: Mapping[str, frozenset[str]],
) -> dict[str, CommitRef]:
    """Return the newest measured commit of each branch."""
    newest: dict[str, CommitRef] = {}
    for branch, shas in sorted(shas_by_branch.items()):
        of_branch = [commit for commit in commits if commit.sha in shas]
        if of_branch:
            newest[branch] = of_branch[-1]
    return newest


def _day_of(name: str) -> date | None:
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", name):
        return None
    try:
        return date.fromisoformat(name)
    except ValueError:
        return None
