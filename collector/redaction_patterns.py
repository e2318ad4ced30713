"""What redaction removes from text: patterns and their replacements,
and the kinds that keep them.
"""

import re
from collections.abc import Callable
from enum import StrEnum


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


Replacement = str | Callable[[re.Match[str]], str] | None
"""A template or a function; None shortens the matched path."""

# --- environment variables

KEPT_VARIABLES = frozenset(
    {
        "CUDA_DEVICE_MAX_CONNECTIONS",
        "CUDA_LAUNCH_BLOCKING",
        "CUDA_VISIBLE_DEVICES",
        "CUDA_VERSION",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "MKL_NUM_THREADS",
        "NCCL_ALGO",
        "NCCL_DEBUG",
        "NCCL_PROTO",
        "NCCL_VERSION",
        "NVIDIA_PRODUCT_NAME",
        "NVIDIA_TF32_OVERRIDE",
        "NV_CUDNN_VERSION",
        "OMP_NUM_THREADS",
        "PYTORCH_ALLOC_CONF",
        "PYTORCH_CUDA_ALLOC_CONF",
        "RANK",
        "WORLD_SIZE",
    }
)
"""Environment variables whose values describe how a program ran."""

ASSIGNMENT = re.compile(r"\b([A-Z_][A-Z0-9_]*)=(\"[^\"]*\"|'[^']*'|[^\s;]*)")
ENV_COMMAND = re.compile(r"\b(?:env|export)\s+(?=[A-Z_][A-Z0-9_]*=)")
COMMON_VARIABLES = {
    "PATH",
    "HOME",
    "PWD",
    "SHELL",
    "LANG",
    "USER",
    "TERM",
    "HOSTNAME",
    "LD_LIBRARY_PATH",
    "SHLVL",
}
"""Variables of every environment; several of them are a dump of one."""
PRIVATE_VARIABLE = re.compile(
    r"(?:SLURM\w*|PBS|LSB|KUBERNETES|AWS|AZURE|GCP|GOOGLE|GITHUB|GITLAB|CI|SSH|SUDO|WANDB|HF"
    r"|DOCKER|VAULT|PG|MYSQL|REDIS|JUPYTER)_\w+"
    r"|MASTER_ADDR|\w+_(?:PROXY|HOST|URL|URI|KEY)"
)
"""Variables that name an account, a machine or a service."""

# --- secrets

_SENSITIVE = (
    r"(?:token|secret|passw(?:or)?d|passphrase|api[_-]?key|access[_-]?key|private[_-]?key"
    r"|credentials?|authori[sz]ation|auth(?!or))"
)
_SECRET_NAME = rf"[\w.-]{{0,60}}{_SENSITIVE}[\w.-]{{0,60}}"
SECRET_NAME = re.compile(_SENSITIVE, re.IGNORECASE)
"""Found in the name of a variable or field that holds a secret."""
SECRET_OPTION = re.compile(rf"--(?:{_SECRET_NAME}|[\w.-]{{1,60}}-key|pw|pwd)$", re.IGNORECASE)
_OPTION = re.compile(
    # `--token abc`, and `token=abc`, `token: abc` or `"token": "abc"`, in a text of JSON as
    # `\"token\": \"abc\"`; a name of C++ may hold `token::`, and of an unexpected token a compiler
    # tells
    rf"(--{_SECRET_NAME}\s+(?=[^\s-])|--[\w.-]{{1,60}}-key[= ]"
    r"|--?(?:pw|pwd|passwd)[= ]|\b(?:pw|pwd|passwd)=(?!/)"
    rf"|(?<!expected\s)(?<!invalid\s)(?<!unknown\s){_SECRET_NAME}"
    r"(?:\s?=\s?\\?[\"']?|\\?[\"']?:(?!:)\s?(?:(?:Bearer|Basic)\s)?\\?[\"']?))"
    r"(?!<)([^\s\"'&;,)\\]+)",
    re.IGNORECASE,
)
_PASSWORD = re.compile(
    # a word that is no English one, or holds what words do not; `password incorrect` says why
    # something failed
    r"((?<![\w/.-])(?:passwd[ \t]{1,8}|(?:password|passphrase|pwd)[ \t]{1,8}(?:is[ \t]{1,8})?"
    r"(?=[A-Za-z]{0,60}[\d!@#$%^*])))(?![<\-\d]*(?:\s|$))(?!for\b|is\b)[^\s\"'&;,)\\<]{3,}",
    re.IGNORECASE,
)
LOGIN_PROGRAMS = (
    "sshpass",
    "mysql",
    "mysqldump",
    "mysqladmin",
    "mariadb",
    "mongo",
    "mongosh",
    "twine",
    "smbclient",
)
_LOGIN = re.compile(
    # what `-p` stands for differs by program: of most it is a port, a path or a project
    rf"((?<![\w-])(?:{'|'.join(LOGIN_PROGRAMS)}"
    r"|(?:docker|podman|helm|oras|az|skopeo)\s{1,8}login)"
    r"\b[^\n;|&]{0,300}?\s-p[ =]?)(?![<\s])[^\s\"';]+"
)
_TOKEN_COUNT = re.compile(r"[\w.-]*tokens?\W+\d+", re.IGNORECASE)
_CREDENTIALS = re.compile(r"(\b\w+://)[^/\s@:]+(?::[^/\s@]*)?@")
_SIGNATURE = re.compile(
    r"([?&;](?:sig|[\w-]*signature|[\w-]*credential|key|code|st|se|sv)=)[^&\s\"'<]+", re.IGNORECASE
)
_HOOK = re.compile(
    r"(https://(?:hooks\.slack\.com|discord(?:app)?\.com/api|[\w.-]+\.webhook\.office\.com)/)"
    r"[^\s\"']+"
)
_WELL_KNOWN = re.compile(
    r"\b(?:gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|hf_\w{20,}|sk-[\w-]{20,}"
    r"|xox[abprs]-[\w-]{10,}"
    r"|rw_\w+_[\w-]{20,}|npm_\w{20,}|pypi-[\w-]{20,}|dckr_pat_[\w-]{20,}|nvapi-[\w-]{20,}"
    r"|AKIA[0-9A-Z]{16}|ASIA[0-9A-Z]{16}|AIza[\w-]{30,}|eyJ[\w-]{10,2000}\.[\w-]{10,}\.[\w-]*)"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)",
    re.DOTALL,
)


def _replace_option(match: re.Match[str]) -> str:
    if _TOKEN_COUNT.fullmatch(match[0]):
        return match[0]
    return f"{match[1]}<secret>"


# --- paths

_PATH = re.compile(
    r"(?:(?<![\w.\])>/~<-])|(?<=file://))/"
    r"(?:(?:home|root|Users|tmp|content|workspace|data|scratch)(?![\w.-])"
    r"|[\w.+@~,=%-]+/)[\w.+@~,=%-]*(?:/[\w.+@~,=%-]*)*"
)
_QUOTED_PATH = re.compile(r"(?<=([\"']))/[^\"'\n/ ]{1,100}/[^\"'\n ]{0,200} [^\"'\n]{0,400}(?=\1)")
_SPACED_HOME_PATH = re.compile(
    # a name without an ending, then words that lead on to a slash: no file ends there and no
    # argument begins
    r"(?<![\w.])/(?:home|Users)/(?:[\w.+@~,=%-]{1,100}/){1,20}?"
    r"(?:[\w+@~,=%-]{1,100}(?: "
    r"(?!-)[\w+@~,=%-]{1,60}){1,4}/(?:[\w.+@~,=%-]{1,100}/){0,20}){1,5}[\w.+@~,=%-]{0,200}"
)
_SHARE_PATH = re.compile(r"(?<![\w:/.])//[\w-][\w.-]{0,250}/[\w.+@~,=%$/-]{1,400}")
"""A network share; behind a colon stands a URL."""
_WINDOWS_PATH = re.compile(
    r"(?<!\w)(?:[A-Za-z]:|\\\\[\w.$-]+)(?:\\{1,2}[^\\/:*?\"<>|\r\n]+)*\\{1,2}([^\\/:*?\"<>|\r\n]*)"
    r"|(?<!\w)[A-Z]:/(?!/)(?:[^\\/:*?\"<>|\s]+/)*([^\\/:*?\"<>|\s]*)"
)
_ENCODED_PATH = re.compile(r"(?:%2F[\w.+@~=-]*)+%2F([\w.+@~=-]*)", re.IGNORECASE)
_INNER_HOME = re.compile(r"/(?:home|Users)/[^/\s;:,\"'<>()]+|(?<![\w/])~[\w-]+(?=/)")
"""Behind an option, as in `-I/home/…`, or within a path."""
HOME = re.compile(r"(/home/[^/\s;:,\"']+|/Users/[^/\s;:,\"']+|/root|~\w*)(/|$)")
BELOW_PACKAGES = re.compile(r".*/(site-packages|dist-packages)(?=/|$)(.*)")
BELOW_LIBRARY = re.compile(r".*/lib/(python3[.\d]*)(?=/)(.*)")
SYSTEM_PATH = re.compile(
    r"/(?!.*/\.\./|dev/shm/|usr/home/)(?:usr/local(?=/(?:cuda|lib|bin|include|share|nvidia))"
    r"|(?:usr(?!/local/)|lib|lib32|lib64|bin|sbin|proc|sys|dev)(?=/|$))"
)

# --- users

USER_IN_PATH = re.compile(
    r"(?:/home/|/Users/|[A-Za-z]:\\\\?Users\\\\?|torchinductor_|triton_cache_)([\w.@-]+)"
)
USER_FIELD = re.compile(
    r"(\b(?:USER|LOGNAME|[A-Z_]{1,40}_USER|(?i:user_?name))\\?[\"']?\s?[=:](?!:)\s?\\?[\"']?)"
    r"(?!<)([\w.@-]+)"
)
PERSONAL_FIELD = re.compile(r"user_?name|host_?name|\w{0,40}nodename", re.IGNORECASE)
"""Names of fields that hold a user or a host."""
_MAIL = re.compile(r"(?<![\w.+-])[\w.+-]+@(?:[\w-]+(?:\.[\w-]+)*\.[A-Za-z]{2,}|[\w-]+(?=:[/~\w]))")

# --- machines

HOST_FIELD = re.compile(
    r"\b(?:HOST|HOSTNAME|host_?name|nodename|DEVICE_DISPLAY_NAME)\"?[ ]?[=:][ ]?\"?([\w.-]+)",
    re.IGNORECASE,
)
NODE_FIELD = re.compile(r"\"node\"\s*:\s*\"([\w.-]+)\"")
_OCTET = r"(?:25[0-5]|2[0-4]\d|1?\d?\d)"
_HOST_WORD = r"(?:ip|ipv4|inet|addr|address|peer|host|server|client|gateway|ping|ssh)"
# four numbers may be a version: an address starts at 32, is private, has a port, or follows a word
# such as `host`
_ADDRESS = re.compile(
    rf"(?<![\w.])(?:(?:10|192\.168|172\.(?:1[6-9]|2\d|3[01])|169\.254)(?:\.{_OCTET}){{2,3}}"
    rf"(?![\w.])|{_OCTET}(?:\.{_OCTET}){{3}}(?=:\d))(?::\d+)?"
    rf"|(?<![\w.=+-])(?<!version "
    rf")(?:3[2-9]|[4-9]\d|1\d\d|2[0-4]\d|25[0-5])(?:\.{_OCTET}){{3}}(?![\w.+-])"
    # of six bytes, and of sixteen where it is one that is given to a machine: `::` stands in names
    # of C++ too
    r"|(?<![\w:])(?:[0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}(?![\w:])"
    r"|(?<![\w:])(?:fe80|f[cd][0-9a-f]{2}|2[0-9a-f]{3}):(?=[0-9a-f:]*\d)"
    r"(?::{0,2}[0-9a-f]{1,4}){2,7}(?![\w:])"
)
_NAMED_ADDRESS = re.compile(
    rf"(?<![\w-])({_HOST_WORD}[ \t]?[:=@ ][ \t]?){_OCTET}(?:\.{_OCTET}){{3}}(?![\w.+-])",
    re.IGNORECASE,
)
_UUID = re.compile(
    r"\b(?:GPU-|MIG-)?[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\b"
)
_SERIAL = re.compile(
    r"(\bserial(?: ?(?:number|no\.?))?\s?[:=#]?\s?)[\dA-Z]*\d{6,}[\dA-Z]*\b", re.IGNORECASE
)
_FIELD = re.compile(
    r"(\b(?:\w{0,40}_HOSTNAME|host_?name|\w{0,40}nodename|MASTER_ADDR|DEVICE_DISPLAY_NAME)"
    r"\\?[\"']?\s?[=:](?!:)\s?\\?[\"']?)(?!<)([\w.-]+)",
    re.IGNORECASE,
)
_INTERNAL = r"(?:internal|corp|lan|intra|intranet|localdomain|cluster\.local)"
_INTERNAL_NAME = re.compile(
    rf"(?<![\w./-])[a-z0-9-]+(?:\.[a-z0-9-]+)*\.[a-z0-9-]+\.{_INTERNAL}(?![\w.-])", re.IGNORECASE
)
_AUTHORITY = re.compile(
    # what is public on the web has a domain and no port; behind any other scheme stands somebody's
    # machine or store
    r"((?!https?://|file://)\b[a-z][a-z0-9+]{0,30}://)(?![<\[])[\w.-]+"
    r"|(https?://)(?:[\w-]+(?=[:/]|$)|[\w.-]+(?=:\d))",
    re.IGNORECASE,
)


def _replace_authority(match: re.Match[str]) -> str:
    name = match[0].partition("://")[2]
    is_handled_below = name == "localhost" or _ADDRESS.match(f"{name}:0")
    host = name if is_handled_below else "<host>"
    return f"{match[1] or match[2]}{host}"


# --- all together

RULES: tuple[tuple[tuple[Kind, ...], re.Pattern[str], Replacement], ...] = (
    ((Kind.ARGUMENTS,), _WELL_KNOWN, "<secret>"),
    ((Kind.ARGUMENTS,), _CREDENTIALS, r"\1<secret>@"),
    ((Kind.ARGUMENTS,), _HOOK, r"\1<secret>"),
    ((Kind.ARGUMENTS,), _SIGNATURE, r"\1<secret>"),
    ((Kind.ARGUMENTS,), _LOGIN, r"\1<secret>"),
    ((Kind.ARGUMENTS,), _PASSWORD, r"\1<secret>"),
    ((Kind.ARGUMENTS,), _OPTION, _replace_option),
    ((Kind.PATHS,), _WINDOWS_PATH, lambda match: f"<path>\\{match[1] or match[2] or ''}"),
    ((Kind.PATHS,), _QUOTED_PATH, None),
    ((Kind.PATHS,), _SPACED_HOME_PATH, None),
    ((Kind.PATHS,), _SHARE_PATH, None),
    ((Kind.PATHS,), _PATH, None),
    ((Kind.PATHS,), _INNER_HOME, "<home>"),
    ((Kind.PATHS,), _ENCODED_PATH, lambda match: f"<path>%2F{match[1]}"),
    ((Kind.USER,), _MAIL, "<mail>"),
    ((Kind.USER, Kind.ENVIRONMENT), USER_FIELD, r"\1<user>"),
    ((Kind.HOSTNAME,), _UUID, "<uuid>"),
    ((Kind.HOSTNAME,), _SERIAL, r"\1<serial>"),
    ((Kind.HOSTNAME,), _AUTHORITY, _replace_authority),
    ((Kind.HOSTNAME,), _ADDRESS, "<address>"),
    ((Kind.HOSTNAME,), _NAMED_ADDRESS, r"\1<address>"),
    ((Kind.HOSTNAME,), _INTERNAL_NAME, "<host>"),
    ((Kind.HOSTNAME,), _FIELD, r"\1<host>"),
)
"""In the order in which they apply, unless one of their kinds is kept."""
