"""Settings from environment variables and one configuration file; command-line options override
both.

The file is `roofwatch.toml`, or `[tool.roofwatch]` in `pyproject.toml`, in the current folder or
the nearest parent that has one. The variables are `ROOFWATCH_<SETTING>`, or
`ROOFWATCH_<TABLE>_<SETTING>` for a setting in a table. With `_FILE` at the end, a variable names a
file that contains the value.
"""

import json
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    model_validator,
)

from roofwatch.model.build_settings import BuildSettings, separated_by_commas
from roofwatch.model.claim import AcceptBy, CheckPolicy, RequiredEvidence

_PREFIX = "ROOFWATCH_"


class SettingsError(Exception):
    """A setting is unknown or invalid."""


def _default_data_dir() -> Path:
    # The XDG base directory specification names the folder of data.
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "roofwatch"


def _from_json(value: object) -> object:
    """Parse a table, which an environment variable holds as JSON."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except json.JSONDecodeError as error:
        raise ValueError(f"not a JSON object: {error}") from None


def _none_if_empty(value: object) -> object:
    """A variable that is set to nothing hides the setting of the file."""
    return value or None


_Price = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Retention(BaseModel):
    """Days to keep data; unset, for ever.

    Medians, and regressions that are found, are always kept.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    samples_days: int | None = Field(default=None, ge=1)
    """Raw samples, and regressions that are no longer found; medians and quartiles stay."""
    telemetry_days: int | None = Field(default=None, ge=1)
    """Device readings taken during runs."""
    artefacts_days: int | None = Field(default=None, ge=1)
    """Files of runs, such as traces; their names and sha256 stay."""
    quarantined_days: int | None = Field(default=None, ge=1)
    """Runs from untrusted sources."""


class ImportSettings(BaseModel):
    """How results of other tools are read."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    controls: Annotated[tuple[str, ...], BeforeValidator(separated_by_commas)] = ()
    """Patterns of implementations that are rows of a library, besides well-known names; separated
    by commas in the environment."""
    presets: Annotated[dict[str, dict[str, str | tuple[str, ...]]], BeforeValidator(_from_json)] = (
        Field(default_factory=dict)
    )
    """Maps of tables by the name for `--as`, with the keys of `--map`."""


class Check(BaseModel):
    """What a check makes of missing evidence."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    untimed: Literal["undecided", "pass"] = "undecided"
    """`pass`: a changed kernel whose time was not measured does not make the result undecided."""
    requires: Annotated[tuple[RequiredEvidence, ...], BeforeValidator(separated_by_commas)] = ()
    """Evidence without which a check fails instead of being neutral: `accuracy`, `code`, `time`;
    separated by commas in the environment.
    """
    predicted: Literal["evidence", "fail"] = "evidence"
    """`fail`: a slowdown that the cycle model predicts from machine code counts as a regression."""

    @model_validator(mode="after")
    def _time_is_not_both(self) -> Self:
        if self.untimed == "pass" and RequiredEvidence.TIME in self.requires:
            raise ValueError('untimed = "pass" contradicts requires = ["time"]')
        return self

    @property
    def policy(self) -> CheckPolicy:
        return CheckPolicy(
            untimed_passes=self.untimed == "pass",
            requires=self.requires,
            predicted_fails=self.predicted == "fail",
        )


class Accept(BaseModel):
    """Who may accept what a check found, in a comment on the pull request."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    by: AcceptBy = AcceptBy.REVIEWER
    """`reviewer`: someone with write access, but not the author of the change. `anyone`: the author
    too. `admin`: an administrator of the repository.
    """


class Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    database_url: SecretStr | None = None
    """URL of a Postgres database; unset, the embedded server in `data_dir`. Never shown: it may
    hold a password.
    """
    database_password: Annotated[SecretStr, Field(min_length=1)] | None = None
    """Password for `database_url`; unset, the one in the URL, or as libpq finds it."""
    database_connections: int = Field(default=15, ge=1, le=1_000)
    """Maximum database connections per process."""
    data_dir: Path = _default_data_dir()
    """Folder of the embedded database and the spool."""
    server_url: Annotated[str | None, BeforeValidator(_none_if_empty)] = None
    """Server that `roofwatch push` sends records to, and that commands read through if no database
    is set.
    """
    oidc_audience: str | None = None
    """Audience that GitHub Actions tokens must have to send records; unset, they are refused."""
    oidc_issuer: str = "https://token.actions.githubusercontent.com"
    """Issuer of those tokens; change it for GitHub Enterprise Server."""
    alert_rules: Path | None = None
    """File of alert rules (check it with `roofwatch alert check`); unset, no alerts."""
    dashboard_url: str | None = None
    """Public address of the dashboard, such as `https://roofwatch.example.com`."""
    repository_url: Annotated[str, Field(pattern=r"^https?://")] | None = None
    """Address of the source code, such as `https://github.com/{project}`, for links to commits and
    lines.
    """
    sign_in_issuer: str | None = None
    """OpenID Connect provider for signing in to the dashboard; unset, the dashboard is read-only.
    """
    sign_in_client_id: str | None = None
    """Client id of the dashboard at that provider."""
    sign_in_client_secret: SecretStr | None = None
    """Client secret of the dashboard at that provider."""
    sign_in_cookie_secret: SecretStr | None = None
    """Key that signs session cookies; unset, a new one at each start, which ends all sessions."""
    triagers: Annotated[tuple[str, ...], BeforeValidator(separated_by_commas)] = ()
    """Verified addresses that may triage regressions: `name@example.com`, `@example.com`, or
    `owner/project=name@example.com` for one project; separated by commas in the environment."""
    device_hour_prices: Annotated[dict[str, _Price], BeforeValidator(_from_json)] = Field(
        default_factory=dict
    )
    """Price of one device hour by pattern of the runner class; the first match counts."""
    currency: Annotated[str, Field(min_length=1, max_length=10)] = "USD"
    """Currency of the prices."""
    build: BuildSettings = BuildSettings()
    """How commits are built for measuring."""
    check: Check = Check()
    """What a check makes of missing evidence."""
    accept: Accept = Accept()
    """Who may accept what a check found."""
    documentation_url: Annotated[str, Field(pattern=r"^https?://")] | None = None
    """Address of this documentation, for links in comments; unset, they are plain text."""
    retention: Retention = Retention()
    """What `roofwatch db prune` deletes."""
    import_: ImportSettings = Field(default=ImportSettings(), alias="import")
    """How `roofwatch import` reads results of other tools."""


SETTING_TABLES: Mapping[str, type[BaseModel]] = {
    "build": BuildSettings,
    "check": Check,
    "accept": Accept,
    "retention": Retention,
    "import": ImportSettings,
}
"""Settings that are tables, by name."""


def load_settings(folder: Path | None = None) -> Settings:
    """Read the settings for a folder.

    Raises:
        SettingsError: the file cannot be parsed, or a setting is unknown or invalid.
    """
    file, values = _from_file(folder or Path.cwd())
    in_file = set(values)
    for name in setting_names():
        value = from_environment(_PREFIX + name.replace(".", "_").upper())
        # The environment of a container overrides the file of the image.
        if value is None:
            continue
        table, _, key = name.rpartition(".")
        fields = values.setdefault(table, {}) if table else values
        # otherwise the file has no table there, which the validation reports
        if isinstance(fields, dict):
            fields[key] = value
    try:
        return Settings.model_validate(values)
    # One problem at a time: the first often causes the others.
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        name = ".".join(str(step) for step in first["loc"])
        where = ""
        if name.split(".")[0] in in_file:
            where = f" in {file}"
        raise SettingsError(
            f"setting {name!r}{where}: {first['msg']}; the settings are "
            f"{', '.join(setting_names())}"
        ) from None


def from_environment(variable: str) -> str | None:
    """Read a variable, or else the file that `<variable>_FILE` names: containers get their secrets
    as files.

    Raises:
        SettingsError: the file cannot be read.
    """
    file = os.environ.get(f"{variable}_FILE")
    if variable in os.environ or file is None:
        return os.environ.get(variable)
    try:
        # Editors end a file with a line break.
        return Path(file).read_text().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{variable}_FILE: {file} cannot be read: {error}") from None


def setting_names() -> list[str]:
    """List all settings; one in a table is `table.name` here and TABLE_NAME in the environment."""
    names = [field.alias or name for name, field in Settings.model_fields.items()]
    top_level = [name for name in names if name not in SETTING_TABLES]
    in_tables: list[str] = []
    for table, model in SETTING_TABLES.items():
        in_tables += [f"{table}.{name}" for name in model.model_fields]
    return top_level + in_tables


def _from_file(folder: Path) -> tuple[Path | None, dict[str, Any]]:
    # The nearest folder wins, as for other tools.
    for candidate in (folder, *folder.resolve().parents):
        own_file = candidate / "roofwatch.toml"
        if own_file.is_file():
            return own_file, _parse(own_file)
        shared = candidate / "pyproject.toml"
        if shared.is_file():
            table = _parse(shared).get("tool", {}).get("roofwatch")
            if table is not None:
                return shared, table
    return None, {}


def _parse(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"{file}: cannot be read as TOML: {error}") from None
