"""Remove from text, records and replies what must not leave the machine.

Host and user names, paths, secrets and environment variables are removed unless they are kept by name. Paths below
the project, site-packages or Python's library, kernel names and shapes stay.
"""

import getpass
import os
import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from roofwatch.collector import redaction_patterns as patterns
from roofwatch.collector.errors import CollectorError
from roofwatch.collector.record.machine import Environment
from roofwatch.collector.record.results import MOST_NAME, ProfiledActivity
from roofwatch.collector.redaction_patterns import Rule, is_secret_name, is_secret_option, takes_password


class Kind(StrEnum):
    """What is removed, by the name that keeps it."""

    HOSTNAME = "hostname"
    """Host names, addresses, and UUIDs of devices and sessions."""
    USER = "user"
    """Account names and mail addresses."""
    PATHS = "paths"
    """Folders outside the project and installed packages; file names stay."""
    ARGUMENTS = "arguments"
    """Names and arguments of processes, and secrets in any text."""
    ENVIRONMENT = "environment"
    """Values of environment variables, except a short list."""
    METADATA = "metadata"
    """Metadata that a program added to its trace."""


KEEP_VARIABLE = "ROOFWATCH_KEEP"
"""Environment variable with the kinds to keep in everything that roofwatch writes."""
EVERYTHING = frozenset(Kind)

_COMMON_NAMES = frozenset(
    {
        *("root", "user", "users", "admin", "ubuntu", "debian", "runner", "nobody", "jovyan", "build", "worker"),
        *("public", "localhost", "localhost.localdomain", "(none)", "host", "node", "vm"),
    }
)
"""Names of accounts and machines that identify nobody."""
_MIN_NAME_LENGTH = 3
_MAX_TEXT_LENGTH = 4_000
_TEXT_FIELDS = frozenset({"message", "baseline_missing"})
"""Fields of models that hold output of kernels, compilers or profilers."""
_PRIVATE_SETTINGS = ("_HOST", "_URL", "_URI", "_KEY", "_TOKEN")


class RedactionError(CollectorError):
    """An unknown kind, or a file that cannot be redacted."""


def parse_kept(names: Iterable[str]) -> frozenset[Kind]:
    """Parse the kinds to keep; `all` keeps everything.

    Raises:
        RedactionError: a name is unknown.
    """
    kept: set[Kind] = set()
    for name in names:
        if name == "all":
            kept |= EVERYTHING
        elif name in set(Kind):
            kept.add(Kind(name))
        else:
            raise RedactionError(f"--keep {name}: unknown; choose from {', '.join(Kind)}, or all")
    return frozenset(kept)


@dataclass(frozen=True)
class Redaction:
    """Removes from text what must not leave the machine."""

    kept: frozenset[Kind] = frozenset()
    project: Path | None = None
    """Paths below it stay, relative to it."""
    users: frozenset[str] = frozenset()
    hosts: frozenset[str] = frozenset()
    secrets: frozenset[str] = field(default=frozenset(), repr=False)
    """Values that are removed everywhere."""

    @classmethod
    def of_this_machine(cls, *, kept: Iterable[Kind] | None = None, project: Path | None = None) -> "Redaction":
        """A redaction that knows the names of this machine and account, and the secrets in the environment.

        Args:
            kept: Kinds to keep; default those in `ROOFWATCH_KEEP`.
            project: Folder of the project; default the current folder.
        """
        if kept is None:
            kept = parse_kept(name for name in os.environ.get(KEEP_VARIABLE, "").split(",") if name)
        try:
            users = {getpass.getuser(), Path.home().name}
        except (KeyError, OSError, RuntimeError):  # an account without a name
            users = set()
        host = socket.gethostname()
        return cls(
            kept=frozenset(kept),
            project=(project or Path.cwd()).resolve(),
            users=_telling(users),
            hosts=_telling({host, host.partition(".")[0]}),
            secrets=frozenset(value for name, value in os.environ.items() if is_secret_name(name) and len(value) >= 6),
        )

    def with_known_names(self, text: str) -> "Redaction":
        """A redaction that also knows the user and host names found in a document."""
        users = {*patterns.USER_IN_PATH.findall(text), *(name for _, name in patterns.USER_FIELD.findall(text))}
        hosts = {*patterns.HOST_FIELD.findall(text), *patterns.NODE_FIELD.findall(text)}
        return replace(self, users=self.users | _telling(users), hosts=self.hosts | _telling(hosts))

    def keeps(self, kind: Kind) -> bool:
        return kind in self.kept

    def text(self, text: str) -> str:
        """Redact a text."""
        if not self.keeps(Kind.ENVIRONMENT) and "=" in text:
            text = _without_environment(text)
        if not self.keeps(Kind.ARGUMENTS):
            for secret in self.secrets:
                text = text.replace(secret, "<secret>")
        for pattern, replacement in self._rules:
            text = pattern.sub(replacement or (lambda found: self.path(found[0])), text)
        return text

    def value(self, name: str, text: str) -> str:
        """Redact the value of a named field or variable."""
        if is_secret_name(name) and not self.keeps(Kind.ARGUMENTS):
            return "<secret>"
        is_variable = name in patterns.COMMON_VARIABLES or patterns.PRIVATE_VARIABLE.fullmatch(name) is not None
        if is_variable and not self.keeps(Kind.ENVIRONMENT):
            return "<removed>"
        if patterns.PERSONAL_FIELD.fullmatch(name):
            return self.text(f"{name}={text}").removeprefix(f"{name}=")
        return self.text(text)

    def arguments(self, arguments: Iterable[str]) -> list[str]:
        """Redact a command line, including words behind options such as `--token`."""
        redacted: list[str] = []
        is_secret = is_login = False
        for argument in arguments:
            redacted.append("<secret>" if is_secret and not self.keeps(Kind.ARGUMENTS) else self.text(argument))
            is_login = is_login or takes_password(argument)
            is_secret = is_secret_option(argument) or (is_login and argument == "-p")
        return redacted

    def path(self, path: str) -> str:
        """Shorten a path: relative to the project or the installed packages, or only the file name."""
        if self.project is not None:
            project = str(self.project)
            if path == project or path.startswith(f"{project}/"):
                return path[len(project) + 1 :] or "."
        for pattern in (patterns.BELOW_PACKAGES, patterns.BELOW_LIBRARY):
            if (below := pattern.fullmatch(path)) is not None:
                return below[1] + below[2]
        if patterns.SYSTEM_PATH.match(path):
            return path
        if patterns.HOME.fullmatch(path):
            return "<home>"
        folder, _, name = path.rpartition("/")
        return f"<path>/{name}" if folder else "<path>"

    @cached_property
    def _rules(self) -> list[Rule]:
        """Rules in the order in which they apply."""
        rules: list[Rule] = []
        if not self.keeps(Kind.ARGUMENTS):
            rules += patterns.SECRET_RULES
        if not self.keeps(Kind.PATHS):
            rules += patterns.PATH_RULES
        elif not self.keeps(Kind.USER):
            rules += patterns.HOME_RULES
        if not self.keeps(Kind.USER):
            rules += patterns.MAIL_RULES
            rules += () if self.keeps(Kind.ENVIRONMENT) else patterns.USER_FIELD_RULES
            rules += _name_rules(self.users, "<user>", re.NOFLAG)
        if not self.keeps(Kind.HOSTNAME):
            rules += (*patterns.HOST_RULES, *_name_rules(self.hosts, "<host>", re.IGNORECASE))
        return rules


def _telling(names: Iterable[str]) -> frozenset[str]:
    """Names that may identify somebody."""
    return frozenset(
        name
        for name in names
        if len(name) >= _MIN_NAME_LENGTH and name.lower() not in _COMMON_NAMES and not name.replace(".", "").isdigit()
    )


def _name_rules(names: frozenset[str], replacement: str, flags: re.RegexFlag) -> list[Rule]:
    if not names:
        return []
    longest_first = "|".join(re.escape(name) for name in sorted(names, key=lambda name: (-len(name), name)))
    pattern = re.compile(rf"(?<![A-Za-z0-9])(?:{longest_first})(?![A-Za-z0-9])", flags)
    return [(pattern, replacement)]


def _without_environment(text: str) -> str:
    names = {name for name, _ in patterns.ASSIGNMENT.findall(text)}
    is_dump = bool(names & patterns.COMMON_VARIABLES)
    if is_dump and len(patterns.ASSIGNMENT.findall(text)) >= 3:
        return "<environment>"
    is_dump = is_dump or patterns.ENV_COMMAND.search(text) is not None

    def redacted(found: re.Match[str]) -> str:
        is_removed = found[1] not in patterns.KEPT_VARIABLES and (
            is_dump or patterns.PRIVATE_VARIABLE.fullmatch(found[1])
        )
        return f"{found[1]}=<removed>" if is_removed else found[0]

    return patterns.ASSIGNMENT.sub(redacted, text)


# --- models

Model = TypeVar("Model", bound=BaseModel)


def redact(model: Model, redaction: Redaction) -> Model:
    """Redact the text fields of a record, a reply, or a part of one; measured values and commits stay."""
    changed = {
        name: redacted
        for name, value in model
        if (redacted := _redact_field(model, name, value, redaction)) is not value
    }
    return model.model_copy(update=changed) if changed else model


def _redact_field(model: BaseModel, name: str, value: Any, redaction: Redaction) -> Any:
    if isinstance(value, BaseModel):
        return redact(value, redaction)
    if isinstance(value, tuple) and value and isinstance(value[0], BaseModel):
        return tuple(redact(part, redaction) for part in value)
    if isinstance(value, str) and name in _TEXT_FIELDS:
        return redaction.text(value)[:_MAX_TEXT_LENGTH]
    if isinstance(model, ProfiledActivity) and name == "name":
        return redaction.text(value)[:MOST_NAME]
    if isinstance(model, Environment) and name == "compile_knobs":
        is_private = not redaction.keeps(Kind.ENVIRONMENT)
        return {
            setting: "<removed>" if is_private and setting.endswith(_PRIVATE_SETTINGS) else redaction.text(text)
            for setting, text in value.items()
        }
    return value
