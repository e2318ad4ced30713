"""The services of docker-compose.yml, checked without a container engine."""

import re
import subprocess
import sys

import pytest
from sqlalchemy import make_url

from roofwatch.configuration.settings import setting_names
from tests.deploy.compose import COMPOSE_FILE, ROOT, read_compose, read_services, substitute
from tests.docs.command_line import check_roofwatch

SERVICES = read_services()
OURS = [name for name, service in SERVICES.items() if service["image"].startswith("roofwatch:")]
EXACT_TAG = re.compile(r":\d+(\.\d+)+(-[a-z]+)?(@sha256:[0-9a-f]{64})?$")


def test_the_file_is_valid_compose() -> None:
    check = ["-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(COMPOSE_FILE)]

    checked = subprocess.run([sys.executable, *check], capture_output=True, text=True, check=False)

    assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize("service", SERVICES)
def test_every_service_has_an_exact_image_and_is_confined_and_limited(service: str) -> None:
    settings = SERVICES[service]

    assert EXACT_TAG.search(substitute(settings["image"], {}))
    assert settings["read_only"] is True
    assert settings["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in settings["security_opt"]
    assert "privileged" not in settings
    assert {"mem_limit", "pids_limit"} <= set(settings)
    assert {"max-size", "max-file"} == set(settings["logging"]["options"])


SECRETS = {
    "postgres": {"postgres_password"},
    "migrate": {"postgres_password"},
    "reader": {"postgres_password", "reader_password"},
    "writer": {"postgres_password", "service_password"},
    "api": {"service_password"},
    "worker": {"service_password"},
    "dashboard": {"reader_password"},
    "backup": {"postgres_password"},
}


def test_services_get_exactly_their_secrets_and_as_files() -> None:
    assert {
        name: set(service["secrets"]) for name, service in SERVICES.items() if "secrets" in service
    } == SECRETS
    for name, secrets in SECRETS.items():
        given = {
            text
            for variable, text in SERVICES[name]["environment"].items()
            if "PASSWORD" in variable
        }
        assert given == {f"/run/secrets/{secret}" for secret in secrets}
    assert {name for secrets in SECRETS.values() for name in secrets} == set(
        read_compose()["secrets"]
    )
    assert all(given["file"].startswith("secrets/") for given in read_compose()["secrets"].values())
    assert "/secrets/" in (ROOT / ".gitignore").read_text().splitlines()


EXAMPLE = (ROOT / ".env.example").read_text().splitlines()[1:]
SECRET_SETTINGS = {"ROOFWATCH_SIGN_IN_CLIENT_SECRET", "ROOFWATCH_SIGN_IN_COOKIE_SECRET"}


def test_the_example_has_every_variable_and_setting_but_secrets_and_what_compose_sets() -> None:
    named = {line.removeprefix("#").partition("=")[0] for line in EXAMPLE}
    settings = {
        f"ROOFWATCH_{name.upper().replace('.', '_')}"
        for name in setting_names()
        # no server builds or imports anything, or posts a check
        if not name.startswith(("build.", "check.", "import."))
    }
    set_here = {"ROOFWATCH_DATABASE_URL", "ROOFWATCH_DATABASE_PASSWORD", "ROOFWATCH_DATA_DIR"}

    assert settings - set_here - SECRET_SETTINGS <= named
    assert not named & (set_here | SECRET_SETTINGS)
    assert set(re.findall(r"\$\{(\w+)", COMPOSE_FILE.read_text())) <= named


@pytest.mark.parametrize("line", EXAMPLE)
def test_every_line_of_the_example_is_explained(line: str) -> None:
    assert re.fullmatch(r"#[A-Z_]+=\S.*  # .+", line)


def test_each_server_reads_the_settings_and_its_own_secrets() -> None:
    files = {
        name: [file["path"] for file in service["env_file"]]
        for name, service in SERVICES.items()
        if "env_file" in service
    }

    assert files == {
        "api": [".env", "secrets/api.env"],
        "dashboard": [".env", "secrets/dashboard.env"],
        "gpu-runner": [".env", "secrets/runner.env"],
    }
    for service in ("api", "dashboard"):
        assert SERVICES[service]["volumes"] == ["./configuration:/etc/roofwatch:ro"]


def test_the_dashboard_connects_with_the_role_of_the_reader() -> None:
    role = SERVICES["reader"]["command"][2]

    assert SERVICES["reader"]["command"][:2] == ["db", "grant-reader"]
    assert make_url(SERVICES["dashboard"]["environment"]["ROOFWATCH_DATABASE_URL"]).username == role
    owners = {
        make_url(SERVICES[name]["environment"]["ROOFWATCH_DATABASE_URL"]).username
        for name in ("migrate", "reader", "writer", "backup")
    }
    assert owners == {SERVICES["postgres"]["environment"]["POSTGRES_USER"]}
    assert role not in owners


def test_the_api_and_the_workers_connect_with_a_role_that_changes_no_schema() -> None:
    assert SERVICES["writer"]["command"][:2] == ["db", "grant-service"]
    for service in ("api", "worker"):
        url = make_url(SERVICES[service]["environment"]["ROOFWATCH_DATABASE_URL"])
        assert url.username == SERVICES["writer"]["command"][2]


def test_services_start_in_the_order_postgres_migration_servers() -> None:
    # `up --wait` takes a service that ends for a failure unless another one waits for just that
    assert SERVICES["migrate"]["depends_on"]["postgres"]["condition"] == "service_healthy"
    for service, before in (
        ("reader", "migrate"),
        ("writer", "migrate"),
        ("api", "writer"),
        ("worker", "writer"),
        ("dashboard", "reader"),
    ):
        assert (
            SERVICES[service]["depends_on"][before]["condition"] == "service_completed_successfully"
        )


def test_only_caddy_publishes_ports_beyond_this_machine() -> None:
    ports = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}

    assert {name: [substitute(port, {}) for port in given] for name, given in ports.items()} == {
        "api": ["127.0.0.1:8700:8700"],
        "dashboard": ["127.0.0.1:8501:8501"],
        "caddy": ["80:80", "443:443"],
    }
    assert read_compose()["networks"]["store"]["internal"] is True
    assert SERVICES["postgres"]["networks"] == ["store"]


@pytest.mark.parametrize("service", OURS)
def test_every_command_is_valid_and_no_database_url_holds_a_password(service: str) -> None:
    url = make_url(SERVICES[service]["environment"]["ROOFWATCH_DATABASE_URL"])

    assert url.username
    assert url.password is None
    if service != "backup":  # a loop, which the test of the whole service runs
        check_roofwatch(SERVICES[service]["command"])
