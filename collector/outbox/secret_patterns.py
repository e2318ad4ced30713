"""Secrets in text: by the name they stand behind, and by what those of well-known services look like."""

from __future__ import annotations

import re
from collections.abc import Iterable

_SENSITIVE = (
    r"(?:token|secret|passw(?:or)?d|passphrase|api[_-]?key|access[_-]?key|private[_-]?key|credentials?"
    r"|authori[sz]ation|auth(?!or))"
)
_NAMED = rf"[\w.-]{{0,60}}{_SENSITIVE}[\w.-]{{0,60}}"
_NAME = re.compile(_SENSITIVE, re.IGNORECASE)
_MAYBE = re.compile(rf"{_SENSITIVE}|-key|\bpw", re.IGNORECASE)
"""Found fast where there is nothing."""
_OPTION = re.compile(
    # `--token abc`, and `token=abc`, `token: abc` or `"token": "abc"`, in a text of JSON as `\"token\": \"abc\"`; a
    # name of C++ may hold `token::`, and of an unexpected token a compiler tells
    rf"(--{_NAMED}\s+(?=[^\s-])|--[\w.-]{{1,60}}-key[= ]"
    r"|--?(?:pw|pwd|passwd)[= ]|\b(?:pw|pwd|passwd)=(?!/)"
    rf"|(?<!expected\s)(?<!invalid\s)(?<!unknown\s){_NAMED}"
    r"(?:\s?=\s?\\?[\"']?|\\?[\"']?:(?!:)\s?(?:(?:Bearer|Basic)\s)?\\?[\"']?))"
    r"(?!<)([^\s\"'&;,)\\]+)",
    re.IGNORECASE,
)
_SPOKEN = re.compile(
    # a word that is no English one, or holds what words do not; `password incorrect` says why something failed
    r"((?<![\w/.-])(?:passwd[ \t]{1,8}|(?:password|passphrase|pwd)[ \t]{1,8}(?:is[ \t]{1,8})?"
    r"(?=[A-Za-z]{0,60}[\d!@#$%^*])))(?![<\-\d]*(?:\s|$))(?!for\b|is\b)[^\s\"'&;,)\\<]{3,}",
    re.IGNORECASE,
)
_LOGIN_PROGRAMS = ("sshpass", "mysql", "mysqldump", "mysqladmin", "mariadb", "mongo", "mongosh", "twine", "smbclient")
_LOGIN = re.compile(
    # what `-p` stands for differs by program: of most it is a port, a path or a project
    rf"((?<![\w-])(?:{'|'.join(_LOGIN_PROGRAMS)}|(?:docker|podman|helm|oras|az|skopeo)\s{{1,8}}login)\b[^\n;|&]{{0,300}}?\s-p"
    r"[ =]?)(?![<\s])[^\s\"';]+"
)
_COUNT = re.compile(r"[\w.-]*tokens?\W+\d+", re.IGNORECASE)
"""How many tokens there are is no secret."""
_OPTION_ALONE = re.compile(rf"--(?:{_NAMED}|[\w.-]{{1,60}}-key|pw|pwd)$", re.IGNORECASE)
_CREDENTIALS = re.compile(r"(\b\w+://)[^/\s@:]+(?::[^/\s@]*)?@")
_SIGNATURE = re.compile(r"([?&;](?:sig|[\w-]*signature|[\w-]*credential|key|code|st|se|sv)=)[^&\s\"'<]+", re.IGNORECASE)
_HOOK = re.compile(r"(https://(?:hooks\.slack\.com|discord(?:app)?\.com/api|[\w.-]+\.webhook\.office\.com)/)[^\s\"']+")
_WELL_KNOWN = re.compile(
    r"\b(?:gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|hf_\w{20,}|sk-[\w-]{20,}|xox[abprs]-[\w-]{10,}"
    r"|rw_\w+_[\w-]{20,}|npm_\w{20,}|pypi-[\w-]{20,}|dckr_pat_[\w-]{20,}|nvapi-[\w-]{20,}"
    r"|AKIA[0-9A-Z]{16}|ASIA[0-9A-Z]{16}|AIza[\w-]{30,}|eyJ[\w-]{10,2000}\.[\w-]{10,}\.[\w-]*)"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)",
    re.DOTALL,
)


def is_secret_name(name: str) -> bool:
    """Whether what is called so is a secret."""
    return _NAME.search(name) is not None


def is_secret_option(argument: str) -> bool:
    """Whether the word after this one on a command line is a secret."""
    return _OPTION_ALONE.fullmatch(argument) is not None


def takes_password(program: str) -> bool:
    """Whether a program's `-p` stands for a password."""
    return program.rpartition("/")[2] in _LOGIN_PROGRAMS


def without_secrets(text: str, known: Iterable[str] = ()) -> str:
    """The text without secrets.

    Args:
        text: Any.
        known: Secrets that are taken out wherever they stand.
    """
    for secret in known:
        text = text.replace(secret, "<secret>")
    text = _WELL_KNOWN.sub("<secret>", text)
    if "://" in text:
        text = _HOOK.sub(r"\1<secret>", _CREDENTIALS.sub(r"\1<secret>@", text))
        text = _SIGNATURE.sub(r"\1<secret>", text)
    if " -p" in text:
        text = _LOGIN.sub(r"\1<secret>", text)
    if _MAYBE.search(text) is None:
        return text
    text = _SPOKEN.sub(r"\1<secret>", text)
    return _OPTION.sub(lambda found: found[0] if _COUNT.fullmatch(found[0]) else f"{found[1]}<secret>", text)
