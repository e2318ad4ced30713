"""Remove from text, records and replies what must not leave the machine.

Paths below the project, site-packages or Python's library, kernel names, shapes and measured values
stay.
"""

import getpass
import os
import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from roofwatch.collector import redaction_patterns as patterns
from roofwatch.collector.redaction_patterns import Kind, Replacement
from roofwatch.model.errors import CollectorError
from roofwatch.model.machine import Environment
from roofwatch.model.results import MOST_NAME, ProfiledActivity

KEEP_VARIABLE = "ROOFWATCH_KEEP"
"""Environment variable with the kinds to keep in everything that roofwatch writes."""
EVERYTHING = frozenset(Kind)

_COMMON_NAMES = frozenset(
    {
        "root",
        "user",
        "users",
        "admin",
        "ubuntu",
        "debian",
        "runner",
        "nobody",
        "jovyan",
        "build",
        "worker",
        "public",
        "localhost",
        "localhost.localdomain",
        "(none)",
        "host",
        "node",
        "vm",
    }
)
"""Names of accounts and machines that identify nobody."""
# Shorter names occur in words that identify nobody.
_MIN_NAME_LENGTH = 3
# A shorter value would be removed from numbers and names, too.
_MIN_SECRET_LENGTH = 6
_MAX_TEXT_LENGTH = 4_000
_TEXT_FIELDS = frozenset({"message", "baseline_missing", "traceback"})
"""Fields of models that hold output of kernels, compilers or profilers."""


class RedactionError(CollectorError):
    """An unknown kind, or a file that cannot be redacted."""


def parse_kinds(names: Iterable[str]) -> frozenset[Kind]:
    """Parse the kinds to keep; `all` keeps everything.

    Raises:
        RedactionError: a name is unknown.
    """
    kept_names = set(names)
    unknown_names = kept_names - {*Kind, "all"}
    if unknown_names:
        raise RedactionError(
            f"--keep {min(unknown_names)}: unknown; choose from {', '.join(Kind)}, or all"
        )
    if "all" in kept_names:
        return EVERYTHING
    return frozenset(map(Kind, kept_names))


@dataclass(frozen=True)
class Redaction:
    """Removes from text what must not leave the machine."""

    kept_kinds: frozenset[Kind] = frozenset()
    project: Path | None = None
    """Paths below it stay, relative to it."""
    users: frozenset[str] = frozenset()
    hosts: frozenset[str] = frozenset()
    secrets: frozenset[str] = field(default=frozenset(), repr=False)
    """Values that are removed everywhere."""

    @classmethod
    def of_this_machine(
        cls,
        *,
        kept_kinds: Iterable[Kind] | None = None,
        project: Path | None = None,
    ) -> "Redaction":
        """A redaction that knows the names of this machine and account, and the secrets in the
        environment.

        The kinds to keep are by default those in `ROOFWATCH_KEEP`, the project is the current
        folder.
        """
        if kept_kinds is None:
            names = os.environ.get(KEEP_VARIABLE, "").split(",")
            kept_kinds = parse_kinds(filter(None, names))
        try:
            users = {getpass.getuser(), Path.home().name}
        except (KeyError, OSError, RuntimeError):  # an account without a name
            users = set()
        host = socket.gethostname()
        secrets: set[str] = set()
        for name, value in os.environ.items():
            is_secret = patterns.SECRET_NAME.search(name) is not None
            if is_secret and len(value) >= _MIN_SECRET_LENGTH:
                secrets.add(value)
        return cls(
            kept_kinds=frozenset(kept_kinds),
            project=(project or Path.cwd()).resolve(),
            users=_telling(users),
            hosts=_telling({host, host.partition(".")[0]}),
            secrets=frozenset(secrets),
        )

    def with_known_names(self, text: str) -> "Redaction":
        """A redaction that also knows the user and host names found in a document."""
        users = set(patterns.USER_IN_PATH.findall(text))
        users |= {name for _, name in patterns.USER_FIELD.findall(text)}
        hosts = set(patterns.HOST_FIELD.findall(text))
        hosts |= set(patterns.NODE_FIELD.findall(text))
        return replace(
            self,
            users=self.users | _telling(users),
            hosts=self.hosts | _telling(hosts),
        )

    def keeps(self, kind: Kind) -> bool:
        return kind in self.kept_kinds

    def text(self, text: str) -> str:
        if not self.keeps(Kind.ENVIRONMENT) and "=" in text:
            text = _without_environment(text)
        if not self.keeps(Kind.ARGUMENTS):
            for secret in self.secrets:
                text = text.replace(secret, "<secret>")
        for pattern, replacement in self._rules:
            # The pattern of paths has no text of its own to put in.
            text = pattern.sub(replacement or (lambda match: self.path(match[0])), text)
        return text

    def value(self, name: str, text: str) -> str:
        """Redact the value of a named field or variable."""
        if not self.keeps(Kind.ARGUMENTS) and patterns.SECRET_NAME.search(name):
            return "<secret>"
        is_variable = (
            name in patterns.COMMON_VARIABLES
            or patterns.PRIVATE_VARIABLE.fullmatch(name) is not None
        )
        if is_variable and not self.keeps(Kind.ENVIRONMENT):
            return "<removed>"
        # The pattern of a field needs its name.
        if patterns.PERSONAL_FIELD.fullmatch(name):
            return self.text(f"{name}={text}").removeprefix(f"{name}=")
        return self.text(text)

    def arguments(self, arguments: Iterable[str]) -> list[str]:
        """Redact a command line, including words behind options such as `--token`."""
        redacted: list[str] = []
        is_secret = False
        is_login = False
        for argument in arguments:
            if is_secret and not self.keeps(Kind.ARGUMENTS):
                redacted.append("<secret>")
            else:
                redacted.append(self.text(argument))
            # `-p` is a password for some programs, and a port for others.
            is_login = is_login or argument.rpartition("/")[2] in patterns.LOGIN_PROGRAMS
            is_password = is_login and argument == "-p"
            is_secret = is_password or bool(patterns.SECRET_OPTION.fullmatch(argument))
        return redacted

    def path(self, path: str) -> str:
        """Shorten a path: relative to the project or the installed packages,
        or only the file name.
        """
        if self.project is not None and f"{path}/".startswith(f"{self.project}/"):
            return path[len(str(self.project)) + 1 :] or "."
        below = patterns.BELOW_PACKAGES.fullmatch(path) or patterns.BELOW_LIBRARY.fullmatch(path)
        if below is not None:
            return below[1] + below[2]
        if patterns.SYSTEM_PATH.match(path):
            return path
        if patterns.HOME.fullmatch(path):
            return "<home>"
        folder, _, name = path.rpartition("/")
        if not folder:
            return "<path>"
        return f"<path>/{name}"

    @cached_property
    def _rules(self) -> list[tuple[re.Pattern[str], Replacement]]:
        """Rules in the order in which they apply; names are replaced last."""
        rules: list[tuple[re.Pattern[str], Replacement]] = []
        for kinds, pattern, new in patterns.RULES:
            if self.kept_kinds.isdisjoint(kinds):
                rules.append((pattern, new))
        # A kept path still contains the name of its user.
        if self.keeps(Kind.PATHS) and not self.keeps(Kind.USER):
            rules.insert(0, (patterns.HOME, r"<home>\2"))
        if self.users and not self.keeps(Kind.USER):
            rules.append((_one_of(self.users), "<user>"))
        if self.hosts and not self.keeps(Kind.HOSTNAME):
            rules.append((_one_of(self.hosts, re.IGNORECASE), "<host>"))
        return rules


def _telling(names: Iterable[str]) -> frozenset[str]:
    """Names that may identify somebody."""
    telling: set[str] = set()
    for name in names:
        is_number = name.replace(".", "").isdigit()
        is_common = len(name) < _MIN_NAME_LENGTH or name.lower() in _COMMON_NAMES
        if not is_common and not is_number:
            telling.add(name)
    return frozenset(telling)


def _one_of(names: frozenset[str], flags: re.RegexFlag = re.NOFLAG) -> re.Pattern[str]:
    # The longest first: a name may begin with another.
    longest_first = sorted(names, key=lambda name: (-len(name), name))
    alternatives = "|".join(re.escape(name) for name in longest_first)
    return re.compile(rf"(?<![A-Za-z0-9])(?:{alternatives})(?![A-Za-z0-9])", flags)


def _without_environment(text: str) -> str:
    assigned = [name for name, _ in patterns.ASSIGNMENT.findall(text)]
    # A few assignments may be a command; many are the output of `env`.
    is_dump = not patterns.COMMON_VARIABLES.isdisjoint(assigned)
    if is_dump and len(assigned) >= 3:
        return "<environment>"
    is_dump = is_dump or patterns.ENV_COMMAND.search(text) is not None

    def redacted(match: re.Match[str]) -> str:
        name = match[1]
        is_private = is_dump or patterns.PRIVATE_VARIABLE.fullmatch(name)
        if is_private and name not in patterns.KEPT_VARIABLES:
            return f"{name}=<removed>"
        return match[0]

    return patterns.ASSIGNMENT.sub(redacted, text)


# --- models

Model = TypeVar("Model", bound=BaseModel)


def redact(model: Model, redaction: Redaction) -> Model:
    """Redact the text fields of a record, a reply, or a part of one; measured values and commits
    stay.
    """
    changed: dict[str, Any] = {}
    for name, value in model:
        redacted = _redact_field(
            model=model,
            name=name,
            value=value,
            redaction=redaction,
        )
        if redacted is not value:
            changed[name] = redacted
    if not changed:
        return model
    return model.model_copy(update=changed)


def _redact_field(
    model: BaseModel,
    name: str,
    value: Any,
    redaction: Redaction,
) -> Any:
    """Redact one field of a record, by its type and name."""
    if isinstance(value, BaseModel):
        return redact(value, redaction)
    if isinstance(value, tuple) and value and isinstance(value[0], BaseModel):
        return tuple(redact(part, redaction) for part in value)
    if isinstance(value, str) and name in _TEXT_FIELDS:
        return redaction.text(value)[:_MAX_TEXT_LENGTH]
    if isinstance(model, ProfiledActivity) and name == "name":
        return redaction.text(value)[:MOST_NAME]
    if isinstance(model, Environment) and name == "compile_knobs":
        return {setting: redaction.value(setting, text) for setting, text in value.items()}
    return value
