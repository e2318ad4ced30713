from pathlib import Path

import pytest
from sqlalchemy import make_url

from roofwatch.configuration.arguments import configured_url
from roofwatch.configuration.settings import SettingsError, load_settings


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ROOFWATCH_DATABASE_URL", "ROOFWATCH_DATA_DIR", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)


def test_without_any_setting_the_embedded_database_is_used(tmp_path: Path) -> None:
    settings = load_settings(tmp_path)
    assert settings.database_url is None
    assert settings.data_dir.name == "roofwatch"


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("roofwatch.toml", 'data_dir = "/from/file"'),
        ("pyproject.toml", '[tool.roofwatch]\ndata_dir = "/from/file"'),
    ],
)
def test_the_environment_overrides_the_nearest_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, text: str
) -> None:
    (tmp_path / file).write_text(text)
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    assert load_settings(below).data_dir == Path("/from/file")
    monkeypatch.setenv("ROOFWATCH_DATA_DIR", "/from/environment")
    assert load_settings(below).data_dir == Path("/from/environment")


def test_a_password_is_never_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ROOFWATCH_DATABASE_URL", "postgresql://someone:hunter2@host/name")
    settings = load_settings(tmp_path)
    assert "hunter2" not in repr(settings)
    assert settings.database_url is not None
    assert settings.database_url.get_secret_value().endswith("hunter2@host/name")


def test_a_variable_may_name_a_file_with_the_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "password").write_text("p@ss/word \n")
    monkeypatch.setenv("ROOFWATCH_DATABASE_URL", "postgresql://someone@host/name")
    monkeypatch.setenv("ROOFWATCH_DATABASE_PASSWORD_FILE", str(tmp_path / "password"))

    url = configured_url()

    assert url is not None
    assert make_url(url).password == "p@ss/word "


def test_a_file_of_a_variable_that_cannot_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROOFWATCH_DATABASE_PASSWORD_FILE", str(tmp_path / "gone"))

    with pytest.raises(
        SettingsError, match=r"ROOFWATCH_DATABASE_PASSWORD_FILE.*gone cannot be read"
    ):
        load_settings(tmp_path)


TABLES = """
[retention]
samples_days = 90
telemetry_days = 30
[device_hour_prices]
"NVIDIA H200*" = 3.5
"""


def test_settings_in_tables_come_from_the_file(tmp_path: Path) -> None:
    (tmp_path / "roofwatch.toml").write_text(TABLES)

    settings = load_settings(tmp_path)

    assert settings.device_hour_prices == {"NVIDIA H200*": 3.5}
    assert settings.retention.samples_days == 90
    assert settings.retention.quarantined_days is None


def test_the_environment_replaces_settings_in_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "roofwatch.toml").write_text(TABLES)
    monkeypatch.setenv("ROOFWATCH_DEVICE_HOUR_PRICES", '{"*": 1}')
    monkeypatch.setenv("ROOFWATCH_RETENTION_TELEMETRY_DAYS", "7")

    settings = load_settings(tmp_path)

    assert settings.device_hour_prices == {"*": 1.0}
    retention = settings.retention
    # the others stay those of the file
    assert (retention.samples_days, retention.telemetry_days) == (90, 7)
    assert retention.quarantined_days is None


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('data_dri = "/x"', "'data_dri' in"),
        ("data_dir = ", "cannot be read as TOML"),
        ("[retention]\nsample_days = 90\n", "'retention.sample_days' in"),
        (
            "[retention]\nsamples_days = 0\n",
            "'retention.samples_days' in .*greater than or equal to 1",
        ),
        ('device_hour_prices = "three"', "'device_hour_prices' in .*not a JSON object"),
    ],
)
def test_an_invalid_file_is_named_with_the_reason_at_its_setting(
    tmp_path: Path, text: str, complaint: str
) -> None:
    (tmp_path / "roofwatch.toml").write_text(text)

    with pytest.raises(SettingsError, match=complaint) as caught:
        load_settings(tmp_path)

    assert str(tmp_path / "roofwatch.toml") in str(caught.value)
