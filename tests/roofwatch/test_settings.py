from pathlib import Path

import pytest

from roofwatch.settings import SettingsError, load_settings


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
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


@pytest.mark.parametrize(
    ("text", "expected"),
    [('data_dri = "/x"', "'data_dri' in"), ("data_dir = 7", "data_dir"), ("data_dir = ", "cannot be read as TOML")],
)
def test_an_invalid_file_is_named_with_the_reason(tmp_path: Path, text: str, expected: str) -> None:
    (tmp_path / "roofwatch.toml").write_text(text)
    with pytest.raises(SettingsError, match=expected) as caught:
        load_settings(tmp_path)
    assert str(tmp_path / "roofwatch.toml") in str(caught.value)


def test_prices_are_a_table_in_a_file_and_json_in_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "roofwatch.toml").write_text('currency = "EUR"\n[device_hour_prices]\n"NVIDIA H200*" = 3.5\n')
    assert load_settings(tmp_path).device_hour_prices == {"NVIDIA H200*": 3.5}
    assert load_settings(tmp_path).currency == "EUR"
    monkeypatch.setenv("ROOFWATCH_DEVICE_HOUR_PRICES", '{"*": 1}')
    assert load_settings(tmp_path).device_hour_prices == {"*": 1.0}


@pytest.mark.parametrize("prices", ["three", '{"*": -1}', '{"*": "dear"}', "[1]"])
def test_invalid_prices_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prices: str) -> None:
    monkeypatch.setenv("ROOFWATCH_DEVICE_HOUR_PRICES", prices)
    with pytest.raises(SettingsError, match="device_hour_prices"):
        load_settings(tmp_path)


def test_settings_in_tables_come_from_file_and_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "roofwatch.toml").write_text("[retention]\nsamples_days = 90\ntelemetry_days = 30\n")
    monkeypatch.setenv("ROOFWATCH_RETENTION_TELEMETRY_DAYS", "7")

    retention = load_settings(tmp_path).retention

    assert (retention.samples_days, retention.telemetry_days, retention.quarantined_days) == (90, 7, None)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[retention]\nsample_days = 90\n", r"'retention.sample_days' in .*roofwatch.toml"),
        ("[retention]\nsamples_days = 0\n", r"'retention.samples_days' in .*greater than or equal to 1"),
        ("retention = 90\n", r"'retention' in "),
        ("database_connections = 0\n", r"'database_connections' in "),
    ],
)
def test_an_invalid_setting_is_named_with_its_table(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "roofwatch.toml").write_text(text)

    with pytest.raises(SettingsError, match=complaint):
        load_settings(tmp_path)
