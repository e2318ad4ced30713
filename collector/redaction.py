"""Take out of text, records and replies what must not leave the machine.

Host and user names, paths, secrets and environment variables are removed unless they are kept by name. Paths below
the project, site-packages or Python's library, kernel names and shapes stay.
"""

from __future__ import annotations

import getpass
import os
import re
import socket
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache, cached_property
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel

from roofwatch.collector.errors import CollectorError
from roofwatch.collector.record.machine import Environment
from roofwatch.collector.record.record import RunRecord
from roofwatch.collector.record.results import MOST_NAME, ProfiledActivity
from roofwatch.collector.redaction_patterns import (
    is_secret_name,
    is_secret_option,
    takes_password,
    without_network_names,
    without_secrets,
)

KEEP_VARIABLE = "ROOFWATCH_KEEP"
"""In the environment: what is kept, for everything that roofwatch writes."""

KEPT_VARIABLES = frozenset(
    {
        *("CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_LAUNCH_BLOCKING", "CUDA_VISIBLE_DEVICES", "CUDA_VERSION"),
        *("LOCAL_RANK", "LOCAL_WORLD_SIZE", "MKL_NUM_THREADS", "NCCL_ALGO", "NCCL_DEBUG", "NCCL_PROTO", "NCCL_VERSION"),
        *("NVIDIA_PRODUCT_NAME", "NVIDIA_TF32_OVERRIDE", "NV_CUDNN_VERSION", "OMP_NUM_THREADS"),
        *("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "RANK", "WORLD_SIZE"),
    }
)
"""Environment variables whose values say how something ran, and nothing of who ran it where."""

_COMMON_ACCOUNTS = frozenset(
    {"root", "user", "users", "admin", "ubuntu", "debian", "runner", "nobody", "jovyan", "build", "worker", "public"}
)
_COMMON_HOSTS = frozenset({"localhost", "localhost.localdomain", "(none)", "host", "node", "vm"})
_LEAST_NAME = 3
"""A shorter name is found where a name stands, and not in the midst of text."""

_PATH = re.compile(
    r"(?:(?<![\w.\])>/~<-])|(?<=file://))/(?:(?:home|root|Users|tmp|content|workspace|data|scratch)(?![\w.-])"
    r"|[\w.+@~,=%-]+/)[\w.+@~,=%-]*(?:/[\w.+@~,=%-]*)*"
)
_QUOTED_PATH = re.compile(r"(?<=([\"']))/[^\"'\n/ ]{1,100}/[^\"'\n ]{0,200} [^\"'\n]{0,400}(?=\1)")
_SPACED_HOME_PATH = re.compile(
    # a name without an ending, then words that lead on to a slash: no file ends there and no argument begins
    r"(?<![\w.])/(?:home|Users)/(?:[\w.+@~,=%-]{1,100}/){1,20}?"
    r"(?:[\w+@~,=%-]{1,100}(?: (?!-)[\w+@~,=%-]{1,60}){1,4}/(?:[\w.+@~,=%-]{1,100}/){0,20}){1,5}[\w.+@~,=%-]{0,200}"
)
_SHARE_PATH = re.compile(r"(?<![\w:/.])//[\w-][\w.-]{0,250}/[\w.+@~,=%$/-]{1,400}")
"""Of Samba and of Perforce; behind a colon stands a URL."""
_WINDOWS_PATH = re.compile(
    r"(?<!\w)(?:[A-Za-z]:|\\\\[\w.$-]+)(?:\\{1,2}[^\\/:*?\"<>|\r\n]+)*\\{1,2}([^\\/:*?\"<>|\r\n]*)"
    r"|(?<!\w)[A-Z]:/(?!/)(?:[^\\/:*?\"<>|\s]+/)*([^\\/:*?\"<>|\s]*)"
)
_ENCODED_PATH = re.compile(r"(?:%2F[\w.+@~=-]*)+%2F([\w.+@~=-]*)", re.IGNORECASE)
_HOME = re.compile(r"(/home/[^/\s;:,\"']+|/Users/[^/\s;:,\"']+|/root|~\w*)(/|$)")
_HOME_ANYWHERE = re.compile(r"/(?:home|Users)/[^/\s;:,\"'<>()]+|(?<![\w/])~[\w-]+(?=/)")
"""Behind an option, as in `-I/home/…`, and in the midst of a path."""
_BELOW_PACKAGES = re.compile(r".*/(site-packages|dist-packages)(?=/|$)(.*)")
_BELOW_LIBRARY = re.compile(r".*/lib/(python3[.\d]*)(?=/)(.*)")
_OF_THE_SYSTEM = re.compile(
    r"/(?!.*/\.\./|dev/shm/|usr/home/)(?:usr/local(?=/(?:cuda|lib|bin|include|share|nvidia))"
    r"|(?:usr(?!/local/)|lib|lib32|lib64|bin|sbin|proc|sys|dev)(?=/|$))"
)

_USER_IN_PATH = re.compile(r"(?:/home/|/Users/|[A-Za-z]:\\\\?Users\\\\?|torchinductor_|triton_cache_)([\w.@-]+)")
_USER_FIELD = re.compile(
    r"(\b(?:USER|LOGNAME|[A-Z_]{1,40}_USER|(?i:user_?name))\\?[\"']?\s?[=:](?!:)\s?\\?[\"']?)(?!<)([\w.@-]+)"
)
_HOST_FIELD = re.compile(
    r"\b(?:HOST|HOSTNAME|host_?name|nodename|DEVICE_DISPLAY_NAME)\"?[ ]?[=:][ ]?\"?([\w.-]+)", re.IGNORECASE
)
_NODE_FIELD = re.compile(r"\"node\"\s*:\s*\"([\w.-]+)\"")

_ASSIGNMENT = re.compile(r"\b([A-Z_][A-Z0-9_]*)=(\"[^\"]*\"|'[^']*'|[^\s;]*)")
_SET_FOR_A_COMMAND = re.compile(r"\b(?:env|export)\s+(?=[A-Z_][A-Z0-9_]*=)")
_IN_EVERY_ENVIRONMENT = {"PATH", "HOME", "PWD", "SHELL", "LANG", "USER", "TERM", "HOSTNAME", "LD_LIBRARY_PATH", "SHLVL"}
_OF_A_PLACE = re.compile(
    r"(?:SLURM\w*|PBS|LSB|KUBERNETES|AWS|AZURE|GCP|GOOGLE|GITHUB|GITLAB|CI|SSH|SUDO|WANDB|HF|DOCKER|VAULT|PG|MYSQL|REDIS"
    r"|JUPYTER)_\w+|MASTER_ADDR|\w+_PROXY|DATABASE_URL"
)
"""Variables that name who runs something where: each is an environment's, wherever it stands."""
_NAMED = re.compile(r"user_?name|host_?name|\w{0,40}nodename", re.IGNORECASE)
"""Names of fields whose values tell of who or where."""
_MAIL = re.compile(r"(?<![\w.+-])[\w.+-]+@(?:[\w-]+(?:\.[\w-]+)*\.[A-Za-z]{2,}|[\w-]+(?=:[/~\w]))")


class Kind(StrEnum):
    """What is taken out, by the names that keep it."""

    HOSTNAME = "hostname"
    """What names the machine: host names, addresses, UUIDs of devices and sessions."""
    USER = "user"
    """Names of accounts, and mail addresses."""
    PATHS = "paths"
    """Folders outside of the project and of installed packages; the name of the file itself stays."""
    ARGUMENTS = "arguments"
    """Names and arguments of processes, and what looks like a secret in any text."""
    ENVIRONMENT = "environment"
    """Values of environment variables, but for a short list."""
    METADATA = "metadata"
    """What a program added to its trace by itself."""


EVERYTHING = frozenset(Kind)


class RedactionError(CollectorError):
    """A kind that is not known, or a file from which nothing can be taken out."""


def parse_kept(names: Iterable[str]) -> frozenset[Kind]:
    """The kinds that are kept, by name; `all` keeps everything.

    Raises:
        RedactionError: a name is not known.
    """
    kept: set[Kind] = set()
    for name in names:
        if name == "all":
            kept |= EVERYTHING
        elif name in set(Kind):
            kept.add(Kind(name))
        else:
            raise RedactionError(f"--keep {name}: not known; what can be kept is {', '.join(Kind)}, or all")
    return frozenset(kept)


@dataclass(frozen=True)
class Redaction:
    """Takes out of text what must not leave the machine."""

    kept: frozenset[Kind] = frozenset()
    project: Path | None = None
    """Paths below it stay, relative to it."""
    users: frozenset[str] = frozenset()
    hosts: frozenset[str] = frozenset()
    secrets: frozenset[str] = field(default=frozenset(), repr=False)
    """Values that are taken out wherever they stand."""

    @classmethod
    def of_this_machine(cls, *, kept: Iterable[Kind] | None = None, project: Path | None = None) -> Redaction:
        """For what is written here: knows the names of this machine and account, and the secrets in the environment.

        Args:
            kept: What is kept; what the environment's `ROOFWATCH_KEEP` says where it is left out.
            project: The folder whose files are named relative to it; the current one where it is left out.
        """
        if kept is None:
            kept = parse_kept(name for name in os.environ.get(KEEP_VARIABLE, "").split(",") if name)
        return cls(
            kept=frozenset(kept),
            project=(project or Path.cwd()).resolve(),
            users=frozenset(name for name in _own_users() if _is_telling(name, _COMMON_ACCOUNTS)),
            hosts=frozenset(name for name in _own_hosts() if _is_telling(name, _COMMON_HOSTS)),
            secrets=frozenset(value for name, value in os.environ.items() if is_secret_name(name) and len(value) >= 6),
        )

    def with_known_names(self, text: str) -> Redaction:
        """The same, and it also knows the names that a document gives away, which may stand in other places too."""
        users = {*_USER_IN_PATH.findall(text), *(name for _, name in _USER_FIELD.findall(text))}
        hosts = {*_HOST_FIELD.findall(text), *_NODE_FIELD.findall(text)}
        return Redaction(
            kept=self.kept,
            project=self.project,
            users=self.users | {name for name in users if _is_telling(name, _COMMON_ACCOUNTS)},
            hosts=self.hosts | {name for name in hosts if _is_telling(name, _COMMON_HOSTS)},
            secrets=self.secrets,
        )

    def keeps(self, kind: Kind) -> bool:
        return kind in self.kept

    def text(self, text: str) -> str:
        """The text without what is not kept."""
        if not self.keeps(Kind.ENVIRONMENT):
            text = self._without_environment(text)
        if not self.keeps(Kind.ARGUMENTS):
            text = without_secrets(text, self.secrets)
        if not self.keeps(Kind.PATHS):
            text = self._without_folders(text)
        elif not self.keeps(Kind.USER):
            text = _HOME.sub(r"<home>\2", text)
        if not self.keeps(Kind.USER):
            text = _MAIL.sub("<mail>", text)
            if not self.keeps(Kind.ENVIRONMENT):
                text = _USER_FIELD.sub(r"\1<user>", text)
            text = _replaced(text, self._user_names, "<user>")
        if not self.keeps(Kind.HOSTNAME):
            text = without_network_names(text)
            text = _replaced(text, self._host_names, "<host>")
        return text

    def value(self, name: str, text: str) -> str:
        """The text, which stands behind a name, as in a document of JSON."""
        if is_secret_name(name) and not self.keeps(Kind.ARGUMENTS):
            return "<secret>"
        is_variable = name in _IN_EVERY_ENVIRONMENT or _OF_A_PLACE.fullmatch(name) is not None
        if is_variable and not self.keeps(Kind.ENVIRONMENT):
            return "<removed>"
        return self.text(f"{name}={text}").removeprefix(f"{name}=") if _NAMED.fullmatch(name) else self.text(text)

    def arguments(self, arguments: Iterable[str]) -> list[str]:
        """A command line without its secrets; `--token` takes the word after it along."""
        told: list[str] = []
        follows = is_login = False
        for argument in arguments:
            told.append("<secret>" if follows and not self.keeps(Kind.ARGUMENTS) else self.text(argument))
            is_login = is_login or takes_password(argument)
            follows = is_secret_option(argument) or (is_login and argument == "-p")
        return told

    def environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Variables with the values that may be told; the others keep their name alone."""
        if self.keeps(Kind.ENVIRONMENT):
            return dict(variables)
        return {name: value if name in KEPT_VARIABLES else "<removed>" for name, value in variables.items()}

    def path(self, path: str) -> str:
        """A path as it may be told: below the project or the installed packages, or the name of the file alone."""
        if self.project is not None:
            project = str(self.project)
            if path == project or path.startswith(f"{project}/"):
                return path[len(project) + 1 :] or "."
        for pattern in (_BELOW_PACKAGES, _BELOW_LIBRARY):
            if (below := pattern.fullmatch(path)) is not None:
                return below[1] + below[2]
        if _OF_THE_SYSTEM.match(path):
            return path
        if _HOME.fullmatch(path):
            return "<home>"
        folder, _, name = path.rpartition("/")
        return f"<path>/{name}" if folder else "<path>"

    @cached_property
    def _user_names(self) -> re.Pattern[str] | None:
        return _any_of(self.users)

    @cached_property
    def _host_names(self) -> re.Pattern[str] | None:
        return _any_of(self.hosts, re.IGNORECASE)

    def _without_environment(self, text: str) -> str:
        if "=" not in text:
            return text
        names = [name for name, _ in _ASSIGNMENT.findall(text)]
        is_whole = bool(set(names) & _IN_EVERY_ENVIRONMENT)
        if is_whole and len(names) >= 3:
            return "<environment>"
        is_whole = is_whole or _SET_FOR_A_COMMAND.search(text) is not None

        def told(said: re.Match[str]) -> str:
            is_removed = said[1] not in KEPT_VARIABLES and (is_whole or _OF_A_PLACE.fullmatch(said[1]))
            return f"{said[1]}=<removed>" if is_removed else said[0]

        return _ASSIGNMENT.sub(told, text)

    def _without_folders(self, text: str) -> str:
        if "\\" in text or ":/" in text:
            text = _WINDOWS_PATH.sub(lambda found: f"<path>\\{found[1] or found[2] or ''}", text)
        if "/" in text:
            text = _QUOTED_PATH.sub(lambda found: self.path(found[0]), text)
            text = _SPACED_HOME_PATH.sub(lambda found: self.path(found[0]), text)
            text = _SHARE_PATH.sub(lambda found: self.path(found[0]), text)
            text = _PATH.sub(lambda found: self.path(found[0]), text)
            text = _HOME_ANYWHERE.sub("<home>", text)
        if "%2" in text:
            text = _ENCODED_PATH.sub(lambda found: f"<path>%2F{found[1]}", text)
        return text


def _own_users() -> set[str]:
    try:
        return {getpass.getuser(), Path.home().name}
    except (KeyError, OSError, RuntimeError):  # an account without a name
        return set()


def _own_hosts() -> set[str]:
    name = socket.gethostname()
    return {name, name.partition(".")[0]}


def _is_telling(name: str, common: frozenset[str]) -> bool:
    return len(name) >= _LEAST_NAME and name.lower() not in common and not name.replace(".", "").isdigit()


def _any_of(names: frozenset[str], flags: int = 0) -> re.Pattern[str] | None:
    if not names:
        return None
    longest_first = sorted(names, key=lambda name: (-len(name), name))
    return re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join(map(re.escape, longest_first))})(?![A-Za-z0-9])", flags)


def _replaced(text: str, names: re.Pattern[str] | None, by: str) -> str:
    return text if names is None else names.sub(by, text)


_MAX_TEXT = 4_000
_TEXT_FIELDS = frozenset({"message", "baseline_missing"})
"""Fields of records and replies that hold what a kernel, a compiler or a profiler printed."""
_PRIVATE_SETTINGS = ("_HOST", "_URL", "_URI", "_KEY", "_TOKEN")
"""Endings of settings whose values name a machine or open one."""

Model = TypeVar("Model", bound=BaseModel)


def redact(model: Model, redaction: Redaction) -> Model:
    """Redact every text field of a record, a reply, or a part of one; measured values and commits stay as they are."""
    changed = {}
    for name in _fields_with_text(type(model)):
        value = getattr(model, name)
        redacted = _redact_field(model, name, value, redaction)
        if redacted is not value:
            changed[name] = redacted
    return model.model_copy(update=changed) if changed else model


def without_author(record: RunRecord, redaction: Redaction) -> RunRecord:
    """Remove the author of the commit, unless names of people are kept."""
    if redaction.keeps(Kind.USER):
        return record
    return record.model_copy(update={"commit": record.commit.model_copy(update={"author": ""})})


def _redact_field(model: BaseModel, name: str, value: Any, redaction: Redaction) -> Any:
    if isinstance(value, str):
        return redaction.text(value)[: MOST_NAME if name == "name" else _MAX_TEXT]
    if isinstance(value, BaseModel):
        return redact(value, redaction)
    if isinstance(value, tuple):
        return tuple(redact(part, redaction) for part in value)
    if isinstance(model, Environment):
        return {knob: _redact_setting(knob, text, redaction) for knob, text in value.items()}
    return value


def _redact_setting(name: str, value: str, redaction: Redaction) -> str:
    if name.endswith(_PRIVATE_SETTINGS) and not redaction.keeps(Kind.ENVIRONMENT):
        return "<removed>"
    return redaction.text(value)


@cache
def _fields_with_text(kind: type[BaseModel]) -> tuple[str, ...]:
    """Fields to redact, and fields of models that have some; samples and counters need not be looked through."""
    return tuple(
        name
        for name, field_info in kind.model_fields.items()
        if name in _TEXT_FIELDS
        or (kind, name) in {(ProfiledActivity, "name"), (Environment, "compile_knobs")}
        or any(_fields_with_text(inner) for inner in _models_in(field_info.annotation))
    )


def _models_in(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _models_in(inner)
