"""What the environment and one configuration file say. Flags of a command come before both.

The file is `roofwatch.toml`, or the table `[tool.roofwatch]` in `pyproject.toml`, in the current folder or the nearest
one above it that has either. Environment variables are named `ROOFWATCH_<SETTING>`, those of a table in the file
`ROOFWATCH_<TABLE>_<SETTING>`.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, ValidationError, field_validator

_PREFIX = "ROOFWATCH_"


class SettingsError(Exception):
    """The configuration says something that is not known or cannot be."""


def _default_data_dir() -> Path:
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "roofwatch"


def _from_json(value: object) -> object:
    """An environment variable holds a table as JSON; a file has tables of its own."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except json.JSONDecodeError as error:
        raise ValueError(f"no JSON object: {error}") from None


_Price = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Retention(BaseModel):
    """How many days things are kept; unset, for ever. What was found in them stays."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    samples_days: int | None = Field(default=None, ge=1)
    """Raw samples; medians, quartiles and all that was judged stay."""
    telemetry_days: int | None = Field(default=None, ge=1)
    """Readings of the device while a run went on."""
    artefacts_days: int | None = Field(default=None, ge=1)
    """Files that came with a run, such as traces; their names and sha256 stay."""
    quarantined_days: int | None = Field(default=None, ge=1)
    """Whole runs that nobody vouched for."""


class Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    database_url: SecretStr | None = None
    """Of a Postgres server; unset, the embedded one in `data_dir` is used. Never shown: it may hold a password."""
    database_connections: int = Field(default=15, ge=1, le=1_000)
    """The most that one process has to the database at once."""
    data_dir: Path = _default_data_dir()
    server_url: str | None = None
    """To which `roofwatch push` sends records, and through which is read where no database is named."""
    oidc_audience: str | None = None
    """What tokens of GitHub Actions must be made for, to send records to `roofwatch api`; unset, none is let in."""
    oidc_issuer: str = "https://token.actions.githubusercontent.com"
    """Who makes those tokens: another one for a GitHub Enterprise Server."""
    alert_rules: Path | None = None
    """The file that says who is told what (`roofwatch alert check` reads it); unset, nobody is told anything."""
    dashboard_url: str | None = None
    """Where people open the dashboard, such as `https://roofwatch.example.com`."""
    repository_url: Annotated[str, Field(pattern=r"^https?://")] | None = None
    """Where people read the code, such as `https://github.com/{project}`: the dashboard links commits and lines."""
    sign_in_issuer: str | None = None
    """The OpenID Connect provider that people sign in to the dashboard with; unset, everybody only reads."""
    sign_in_client_id: str | None = None
    """By which that provider knows the dashboard."""
    sign_in_client_secret: SecretStr | None = None
    sign_in_cookie_secret: SecretStr | None = None
    """Signs the cookies of those who signed in; unset, one is made at each start, and everybody signs in again."""
    triagers: tuple[str, ...] = ()
    """Who may decide about regressions, of those who signed in with a verified address: `name@example.com`,
    `@example.com`, or `owner/project=name@example.com` for one project; in the environment separated by commas."""
    device_hour_prices: Annotated[dict[str, _Price], BeforeValidator(_from_json)] = Field(default_factory=dict)
    """What an hour of one device costs, by shell pattern of the runner class; the first that matches counts."""
    currency: Annotated[str, Field(min_length=1, max_length=10)] = "USD"
    """Of those prices."""
    retention: Retention = Retention()
    """What `roofwatch db prune` removes."""

    @field_validator("triagers", mode="before")
    @classmethod
    def _separated_by_commas(cls, value: object) -> object:
        return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def load_settings(folder: Path | None = None) -> Settings:
    """Read the settings that hold in a folder.

    Raises:
        SettingsError: a file cannot be parsed, or a setting is not known or has a value that cannot be.
    """
    file, values = _from_file(folder or Path.cwd())
    try:
        return Settings.model_validate(_merged(values, _from_environment()))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        name = ".".join(str(step) for step in first["loc"])
        where = f" in {file}" if name.split(".")[0] in values else ""
        raise SettingsError(
            f"setting {name!r}{where}: {first['msg']}; the settings are {', '.join(setting_names())}"
        ) from None


def setting_names() -> list[str]:
    """All settings; one of a table of the file as `table.name`, which is TABLE_NAME in the environment."""
    return list(_names(Settings, ""))


def _names(table: type[BaseModel], prefix: str) -> Iterator[str]:
    for name, field in table.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _names(field.annotation, f"{prefix}{name}.")
        else:
            yield prefix + name


def _from_file(folder: Path) -> tuple[Path | None, dict[str, Any]]:
    for candidate in (folder, *folder.resolve().parents):
        own = candidate / "roofwatch.toml"
        if own.is_file():
            return own, _parse(own)
        shared = candidate / "pyproject.toml"
        if shared.is_file():
            table = _parse(shared).get("tool", {}).get("roofwatch")
            if table is not None:
                return shared, dict(table)
    return None, {}


def _from_environment() -> dict[str, Any]:
    # plain pydantic, since a machine that only measures has no pydantic-settings
    values: dict[str, Any] = {}
    for name in setting_names():
        given = os.environ.get(_PREFIX + name.replace(".", "_").upper())
        if given is None:
            continue
        *tables, last = name.split(".")
        place = values
        for table in tables:
            place = place.setdefault(table, {})
        place[last] = given
    return values


def _merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    merged = below | above
    for name, value in above.items():
        if isinstance(value, dict) and isinstance(below.get(name), dict):
            merged[name] = _merged(below[name], value)
    return merged


def _parse(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsError(f"{file}: cannot be read as TOML: {error}") from None
