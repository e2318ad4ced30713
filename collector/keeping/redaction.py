"""What must not leave a machine, and text without it: names of hosts and of people, paths, secrets, the environment.

What analysis needs stays: paths below the project, site-packages or Python's own library, names of kernels, shapes.
What is taken out can be kept by name.
"""

from __future__ import annotations

import getpass
import os
import re
import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from pathlib import Path

from collector.errors import CollectorError

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
    r"(?<![\w.\])>/~<-])/(?:(?:home|root|Users|tmp|content|workspace|data)(?![\w.-])"
    r"|[\w.+@~,=%-]+/)[\w.+@~,=%-]*(?:/[\w.+@~,=%-]*)*"
)
_WINDOWS_PATH = re.compile(r"(?<![\w])[A-Za-z]:\\(?:[^\\/:*?\"<>|\r\n]+\\)*[^\\/:*?\"<>|\r\n]*")
_HOME = re.compile(r"(/home/[^/\s;:,\"']+|/Users/[^/\s;:,\"']+|/root|~\w*)(/|$)")
_BELOW_PACKAGES = re.compile(r".*/(site-packages|dist-packages)(?=/|$)(.*)")
_BELOW_LIBRARY = re.compile(r".*/lib/(python3[.\d]*)(?=/)(.*)")
_OF_THE_SYSTEM = re.compile(r"/(?:usr|lib|lib32|lib64|bin|sbin|proc|sys|dev)(?=/|$)")

_USER_IN_PATH = re.compile(r"(?:/home/|/Users/|[A-Za-z]:\\\\?Users\\\\?|torchinductor_|triton_cache_)([\w.@-]+)")
_USER_FIELD = re.compile(r"\b(?:USER|LOGNAME|USERNAME|user_?name)\"?[ ]?[=:][ ]?\"?([\w.@-]+)", re.IGNORECASE)
_HOST_FIELD = re.compile(
    r"\b(?:HOST|HOSTNAME|host_?name|nodename|DEVICE_DISPLAY_NAME)\"?[ ]?[=:][ ]?\"?([\w.-]+)", re.IGNORECASE
)
_NODE_FIELD = re.compile(r"\"node\"\s*:\s*\"([\w.-]+)\"")

_SENSITIVE = (
    r"(?:token|secret|passw(?:or)?d|passphrase|api[_-]?key|access[_-]?key|private[_-]?key|credentials?|auth(?!or))"
)
_SECRET_OPTION = re.compile(
    # `--token abc`, and `token=abc` or `"token": "abc"`; a name of C++ may hold `token::`
    rf"(--[\w.-]*{_SENSITIVE}[\w.-]*\s+(?=[^\s-])|[\w.-]*{_SENSITIVE}[\w.-]*(?:=[\"']?|[\"']?:[ ]?[\"']))"
    r"(?!<)([^\s\"'&;,)]+)",
    re.IGNORECASE,
)
_OPTION_ALONE = re.compile(rf"--[\w.-]*{_SENSITIVE}[\w.-]*$", re.IGNORECASE)
_SECRET_NAME = re.compile(_SENSITIVE, re.IGNORECASE)
_CREDENTIALS = re.compile(r"(\w+://)[^/\s@:]+(?::[^/\s@]*)?@")
_KNOWN_SECRETS = re.compile(
    r"\b(?:gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|hf_\w{20,}|sk-[\w-]{20,}|xox[abprs]-[\w-]{10,}"
    r"|AKIA[0-9A-Z]{16}|AIza[\w-]{30,}|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]*)"
)
_ASSIGNMENT = re.compile(r"\b([A-Z_][A-Z0-9_]*)=(\"[^\"]*\"|'[^']*'|[^\s;]*)")
_IN_EVERY_ENVIRONMENT = {"PATH", "HOME", "PWD", "SHELL", "LANG", "USER", "TERM", "HOSTNAME", "LD_LIBRARY_PATH", "SHLVL"}
_MAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)*\.[A-Za-z]{2,}")
_UUID = re.compile(r"\b(?:GPU-|MIG-)?[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\b")
_OCTET = r"(?:25[0-5]|2[0-4]\d|1?\d?\d)"
# four numbers alone may be a version
_ADDRESS = re.compile(
    rf"(?<![\w.])(?:(?:10|192\.168|172\.(?:1[6-9]|2\d|3[01])|169\.254)(?:\.{_OCTET}){{2,3}}(?![\w.])"
    rf"|{_OCTET}(?:\.{_OCTET}){{3}}(?=:\d))(?::\d+)?"
)


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
            secrets=frozenset(
                value for name, value in os.environ.items() if _SECRET_NAME.search(name) and len(value) >= 6
            ),
        )

    def knowing(self, text: str) -> Redaction:
        """The same, and it also knows the names that a document gives away, which may stand in other places too."""
        users = {*_USER_IN_PATH.findall(text), *_USER_FIELD.findall(text)}
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
            text = self._without_secrets(text)
        if not self.keeps(Kind.PATHS):
            text = self._without_folders(text)
        elif not self.keeps(Kind.USER):
            text = _HOME.sub(r"<home>\2", text)
        if not self.keeps(Kind.USER):
            text = _MAIL.sub("<mail>", text)
            text = _replaced(text, self._user_names, "<user>")
        if not self.keeps(Kind.HOSTNAME):
            text = _ADDRESS.sub("<address>", _UUID.sub("<uuid>", text))
            text = _replaced(text, self._host_names, "<host>")
        return text

    def arguments(self, arguments: Iterable[str]) -> list[str]:
        """A command line without its secrets; `--token` takes the word after it along."""
        told: list[str] = []
        follows = False
        for argument in arguments:
            told.append("<secret>" if follows and not self.keeps(Kind.ARGUMENTS) else self.text(argument))
            follows = _OPTION_ALONE.fullmatch(argument) is not None
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
        return _any_of(self.hosts)

    def _without_environment(self, text: str) -> str:
        if "=" not in text:
            return text
        found = _ASSIGNMENT.findall(text)
        if not {name for name, _ in found} & _IN_EVERY_ENVIRONMENT:
            return text
        if len(found) >= 3:
            return "<environment>"
        return _ASSIGNMENT.sub(lambda said: said[0] if said[1] in KEPT_VARIABLES else f"{said[1]}=<removed>", text)

    def _without_secrets(self, text: str) -> str:
        for secret in self.secrets:
            text = text.replace(secret, "<secret>")
        text = _KNOWN_SECRETS.sub("<secret>", text)
        if "://" in text:
            text = _CREDENTIALS.sub(r"\1<secret>@", text)
        return _SECRET_OPTION.sub(r"\1<secret>", text) if _SECRET_NAME.search(text) else text

    def _without_folders(self, text: str) -> str:
        if "/" in text:
            text = _PATH.sub(lambda found: self.path(found[0]), text)
        if ":\\" in text:
            text = _WINDOWS_PATH.sub(lambda found: "<path>\\" + found[0].rpartition("\\")[2], text)
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


def _any_of(names: frozenset[str]) -> re.Pattern[str] | None:
    if not names:
        return None
    longest_first = sorted(names, key=lambda name: (-len(name), name))
    return re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join(map(re.escape, longest_first))})(?![A-Za-z0-9])")


def _replaced(text: str, names: re.Pattern[str] | None, by: str) -> str:
    return text if names is None else names.sub(by, text)
