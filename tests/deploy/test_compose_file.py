"""The services of docker-compose.yml, checked without a container engine."""

import re
import subprocess
import sys

import pytest
from sqlalchemy import make_url

from roofwatch.settings import setting_names
from tests.deploy.compose import COMPOSE_FILE, ROOT, read_compose, read_services, strings, substitute
from tests.docs.command_line import check_roofwatch

SERVICES = read_services()
OURS = [name for name, service in SERVICES.items() if "build" in service]
EXACT_TAG = re.compile(r":\d+(\.\d+)+(-[a-z]+)?(@sha256:[0-9a-f]{64})?$")


def test_the_file_is_valid_compose() -> None:
    check = ["-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(COMPOSE_FILE)]

    checked = subprocess.run([sys.executable, *check], capture_output=True, text=True, check=False)

    assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize("service", SERVICES)
def test_every_image_has_an_exact_tag(service: str) -> None:
    assert EXACT_TAG.search(SERVICES[service]["image"])


@pytest.mark.parametrize("service", SERVICES)
def test_every_service_is_confined(service: str) -> None:
    settings = SERVICES[service]

    assert settings["read_only"] is True
    assert settings["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in settings["security_opt"]
    assert "privileged" not in settings


PASSWORDS = {
    "postgres": {"POSTGRES_PASSWORD": "POSTGRES_PASSWORD"},
    "migrate": {"PGPASSWORD": "POSTGRES_PASSWORD"},
    "reader": {"PGPASSWORD": "POSTGRES_PASSWORD", "ROOFWATCH_READER_PASSWORD": "READER_PASSWORD"},
    "api": {"PGPASSWORD": "POSTGRES_PASSWORD"},
    "dashboard": {"PGPASSWORD": "READER_PASSWORD"},
}


@pytest.mark.parametrize("service", SERVICES)
def test_services_require_exactly_their_passwords(service: str) -> None:
    given = {name: text for name, text in SERVICES[service]["environment"].items() if "PASSWORD" in name}

    assert set(given) == set(PASSWORDS[service])
    for name, text in given.items():
        variable = PASSWORDS[service][name]
        assert substitute(text, {variable: "x"}) == "x"
        for unset in ({}, {variable: ""}):
            with pytest.raises(KeyError, match=variable):
                substitute(text, unset)


def test_secrets_are_only_in_environments() -> None:
    document = read_compose()
    for part in (*document["services"].values(), document["x-roofwatch"]):
        del part["environment"]

    assert [text for text in strings(document) if re.search("PASSWORD|SECRET", text)] == []


def test_sign_in_secrets_are_passed_to_the_dashboard_alone() -> None:
    secrets = {name for service in SERVICES.values() for name in service["environment"] if name.endswith("_SECRET")}

    assert secrets == {"ROOFWATCH_SIGN_IN_CLIENT_SECRET", "ROOFWATCH_SIGN_IN_COOKIE_SECRET"}
    assert all(SERVICES["dashboard"]["environment"][name] is None for name in secrets)
    assert all(not secrets & set(SERVICES[name]["environment"]) for name in SERVICES if name != "dashboard")


def names_of_settings(prefix: str = "") -> set[str]:
    """As environment variables."""
    return {f"ROOFWATCH_{name.upper().replace('.', '_')}" for name in setting_names() if name.startswith(prefix)}


def test_services_receive_all_their_settings() -> None:
    of_clients = {"ROOFWATCH_DATA_DIR", "ROOFWATCH_SERVER_URL"}
    of_dashboard = names_of_settings("sign_in_") | {
        *("ROOFWATCH_TRIAGERS", "ROOFWATCH_REPOSITORY_URL"),
        *("ROOFWATCH_DEVICE_HOUR_PRICES", "ROOFWATCH_CURRENCY"),
    }
    of_api = names_of_settings("oidc_") | names_of_settings("retention.")
    of_both = names_of_settings("database_") | {"ROOFWATCH_DASHBOARD_URL", "ROOFWATCH_ALERT_RULES"}

    assert of_dashboard | of_api | of_both | of_clients == names_of_settings()
    assert of_dashboard | of_both <= set(SERVICES["dashboard"]["environment"])
    assert of_api | of_both <= set(SERVICES["api"]["environment"])


def test_alert_rules_and_codeowners_are_mounted_read_only() -> None:
    for service in ("api", "dashboard"):
        (folder,) = SERVICES[service]["volumes"]

        assert substitute(folder, {"ROOFWATCH_CONFIGURATION": "./alerts"}) == "./alerts:/etc/roofwatch:ro"
        assert substitute(folder, {}).split(":")[0] in read_compose()["volumes"]
        assert {"GITHUB_TOKEN", "GITHUB_API_URL"} <= set(SERVICES[service]["environment"])


def test_channel_secrets_are_in_a_file_of_the_api_alone() -> None:
    files = {name: service["env_file"] for name, service in SERVICES.items() if "env_file" in service}

    assert files == {"api": [{"path": "alerts.env", "required": False}]}
    assert "alerts.env" in (ROOT / ".gitignore").read_text().splitlines()
    assert (ROOT / ".dockerignore").read_text().splitlines()[1] == "*"


def test_the_dashboard_connects_with_the_role_of_the_reader() -> None:
    role = SERVICES["reader"]["command"][2]

    assert SERVICES["reader"]["command"][:2] == ["db", "grant-reader"]
    assert make_url(SERVICES["dashboard"]["environment"]["ROOFWATCH_DATABASE_URL"]).username == role
    owners = {make_url(SERVICES[name]["environment"]["ROOFWATCH_DATABASE_URL"]).username for name in ("migrate", "api")}
    assert owners == {SERVICES["postgres"]["environment"]["POSTGRES_USER"]}
    assert role not in owners


@pytest.mark.parametrize("service", OURS)
def test_the_database_url_holds_no_password(service: str) -> None:
    assert "@" in SERVICES[service]["environment"]["ROOFWATCH_DATABASE_URL"]
    assert ":" not in SERVICES[service]["environment"]["ROOFWATCH_DATABASE_URL"].split("//")[1].split("@")[0]


def test_services_start_in_the_order_postgres_migration_servers() -> None:
    # `up --wait` takes a service that ends for a failure unless another one waits for just that
    assert SERVICES["migrate"]["depends_on"]["postgres"]["condition"] == "service_healthy"
    for service, before in (("reader", "migrate"), ("api", "migrate"), ("dashboard", "reader")):
        assert SERVICES[service]["depends_on"][before]["condition"] == "service_completed_successfully"


def test_only_the_api_and_the_dashboard_publish_ports_on_localhost() -> None:
    ports = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}

    assert {name: [substitute(port, {}) for port in given] for name, given in ports.items()} == {
        "api": ["127.0.0.1:8700:8700"],
        "dashboard": ["127.0.0.1:8501:8501"],
    }
    assert read_compose()["networks"]["store"]["internal"] is True
    assert SERVICES["postgres"]["networks"] == ["store"]


@pytest.mark.parametrize("service", OURS)
def test_every_command_is_valid(service: str) -> None:
    check_roofwatch(SERVICES[service]["command"])
