"""Patterns of network names and secrets in text."""

from __future__ import annotations

import re
from collections.abc import Iterable

_OCTET = r"(?:25[0-5]|2[0-4]\d|1?\d?\d)"
_PLACE = r"(?:ip|ipv4|inet|addr|address|peer|host|server|client|gateway|ping|ssh)"
# four numbers alone may be a version: of what is told here those begin with a number below 32, but few are spoken of
# as a place
_ADDRESS = re.compile(
    rf"(?<![\w.])(?:(?:10|192\.168|172\.(?:1[6-9]|2\d|3[01])|169\.254)(?:\.{_OCTET}){{2,3}}(?![\w.])"
    rf"|{_OCTET}(?:\.{_OCTET}){{3}}(?=:\d))(?::\d+)?"
    rf"|(?<![\w.=+-])(?<!version )(?:3[2-9]|[4-9]\d|1\d\d|2[0-4]\d|25[0-5])(?:\.{_OCTET}){{3}}(?![\w.+-])"
    # of six bytes, and of sixteen where it is one that is given to a machine: `::` stands in names of C++ too
    r"|(?<![\w:])(?:[0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}(?![\w:])"
    r"|(?<![\w:])(?:fe80|f[cd][0-9a-f]{2}|2[0-9a-f]{3}):(?=[0-9a-f:]*\d)(?::{0,2}[0-9a-f]{1,4}){2,7}(?![\w:])"
)
_SPOKEN_OF = re.compile(rf"(?<![\w-])({_PLACE}[ \t]?[:=@ ][ \t]?){_OCTET}(?:\.{_OCTET}){{3}}(?![\w.+-])", re.IGNORECASE)
_UUID = re.compile(r"\b(?:GPU-|MIG-)?[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\b")
_SERIAL = re.compile(r"(\bserial(?: ?(?:number|no\.?))?\s?[:=#]?\s?)[\dA-Z]*\d{6,}[\dA-Z]*\b", re.IGNORECASE)
_FIELD = re.compile(
    r"(\b(?:\w{0,40}_HOSTNAME|host_?name|\w{0,40}nodename|MASTER_ADDR|DEVICE_DISPLAY_NAME)\\?[\"']?\s?[=:](?!:)\s?\\?[\"']?)"
    r"(?!<)([\w.-]+)",
    re.IGNORECASE,
)
_INTERNAL = r"(?:internal|corp|lan|intra|intranet|localdomain|cluster\.local)"
_INTERNAL_NAME = re.compile(
    rf"(?<![\w./-])[a-z0-9-]+(?:\.[a-z0-9-]+)*\.[a-z0-9-]+\.{_INTERNAL}(?![\w.-])", re.IGNORECASE
)
_MAYBE_INTERNAL = re.compile(rf"\.{_INTERNAL}(?![\w.-])", re.IGNORECASE)
_AUTHORITY = re.compile(
    # what is public on the web has a domain and no port; behind any other scheme stands somebody's machine or store
    r"((?!https?://|file://)\b[a-z][a-z0-9+]{0,30}://)(?![<\[])[\w.-]+|(https?://)(?:[\w-]+(?=[:/]|$)|[\w.-]+(?=:\d))",
    re.IGNORECASE,
)


def without_network_names(text: str) -> str:
    """The text without addresses, serial numbers, and names that can only be those of machines."""
    text = _SERIAL.sub(r"\1<serial>", _UUID.sub("<uuid>", text))
    if "://" in text:
        text = _AUTHORITY.sub(lambda found: f"{found[1] or found[2]}{_told(found[0])}", text)
    text = _SPOKEN_OF.sub(r"\1<address>", _ADDRESS.sub("<address>", text))
    if _MAYBE_INTERNAL.search(text) is not None:
        text = _INTERNAL_NAME.sub("<host>", text)
    return _FIELD.sub(r"\1<host>", text)


def _told(url: str) -> str:
    name = url.partition("://")[2]
    return name if name == "localhost" or _ADDRESS.match(f"{name}:0") else "<host>"


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
