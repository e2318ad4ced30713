"""Names and addresses of machines in text."""

from __future__ import annotations

import re

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
