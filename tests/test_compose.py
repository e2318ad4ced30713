"""The page for operators, command by command, in real containers; `make compose-test` runs it in
ten minutes.
"""

from __future__ import annotations

import json
import os
import queue
import re
import shutil
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email import message_from_bytes
from email.policy import default
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import expect

from tests.builders import make_commit, make_measurement, make_record
from tests.dashboard.browsing import TIMEOUT_MS, launched
from tests.docs.markdown import ROOT, shell_lines

IMAGES = ("debian:13.8-slim", "postgres:18.6-trixie", "caddy:2.11.4-alpine")
"""Of Docker Hub, or stand-ins."""
PROJECT = "owner/kernels"
"""Of the page."""
RELEASE = ("roofwatch/__init__.py", "docker-compose.yml")
"""Files with the version."""
RULES = """
[channels]
mail = { kind = "apprise", url_env = "ALERT_MAIL_URL" }

[[rules]]
name = "slower"
kind = "regression"
min_relative_change = "5%"
channels = ["mail"]
"""


def reason_to_skip() -> str | None:
    for command in (
        ["docker", "compose", "version"],
        ["docker", "buildx", "version"],
        ["docker", "info"],
    ):
        if (
            shutil.which("docker") is None
            or subprocess.run(command, capture_output=True, check=False).returncode != 0
        ):
            return (
                f"`{' '.join(command)}` fails here: needs Docker with Compose and a running daemon"
            )
    return None


REASON = reason_to_skip()
pytestmark = [
    pytest.mark.compose,
    pytest.mark.slow,
    pytest.mark.xdist_group("compose"),
    pytest.mark.skipif(REASON is not None, reason=str(REASON)),
]


class Operator:
    """A shell in a checkout on a machine with Docker, and the mail that this person gets."""

    def __init__(self, checkout: Path) -> None:
        self.checkout = checkout
        self.mail: queue.Queue[str] = queue.Queue()
        self.token = ""
        self.variables = os.environ | {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "COMPOSE_PROJECT_NAME": "roofwatch-test",
            "NO_COLOR": "1",
            "XDG_DATA_HOME": str(checkout.parent / "data"),
        }
        self.replaced = {
            "roofwatch.example.com": "localhost",
            ":8700": ":18700",
            "cp .env.example .env": "cat .env.example settings > .env",
            "git pull": f"sed -i s/0.1.0/0.1.1/ {' '.join(RELEASE)}",
        }

    def run(self, line: str, status: int = 0, **variables: str) -> str:
        """Return what a command printed."""
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=self.checkout,
            env=self.variables | variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == status, (
            f"{line}: {done.returncode}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        )
        return done.stdout + done.stderr

    def follow(self, section: str) -> list[str]:
        """Run the commands of a section of the page; return what each printed."""
        shown = []
        for line in shell_lines(ROOT / "docs" / "how-to" / "operate.md", section):
            for example, value in self.replaced.items():
                line = line.replace(example, value)
            shown.append(self.run(line))
        assert shown
        return shown

    def roofwatch(self, arguments: str) -> Any:
        """The JSON that a command in the API's container prints."""
        return json.loads(
            self.run(f"docker compose exec api roofwatch {arguments} --json 2>/dev/null")
        )

    def run_count(self) -> int:
        shown = re.search(
            r"(\d+) run\(s\).* no problem", self.run("docker compose exec api roofwatch db verify")
        )
        assert shown is not None
        return int(shown[1])

    def push(self, folder: Path) -> None:
        """Send records as a machine that measures does."""
        self.run(
            f"roofwatch push {folder} --url http://127.0.0.1:18700", ROOFWATCH_TOKEN=self.token
        )

    def container(self, service: str) -> dict[str, Any]:
        (state,) = json.loads(
            self.run(f"docker inspect $(docker compose ps --all --quiet {service})")
        )
        assert isinstance(state, dict)
        return state


def wait_for(condition: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.5)


def write_records(folder: Path, median_ns: float, numbers: range) -> Path:
    """One run an hour, of a kernel with noise of half a percent; the last one is of this hour."""
    rng = np.random.default_rng(numbers.start)
    newest = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=2)
    folder.mkdir()
    for number in numbers:
        commit = make_commit(number, committed_at=newest - timedelta(hours=40 - number))
        measured = make_measurement(median_ns=median_ns * rng.normal(1, 0.005))
        make_record(project=PROJECT, measurements=[measured], commit=commit).write(
            folder / f"{number}.json.gz"
        )
    return folder


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    checkout = tmp_path_factory.mktemp("compose") / "roofwatch"
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    for name in filter(None, listed.split("\0")):
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, checkout / name, follow_symlinks=False)
    operator = Operator(checkout)
    for image in IMAGES:
        operator.run(
            f"docker image inspect {image} || docker pull {image} || tests/deploy/stand_ins.sh"
        )
    ports = "ROOFWATCH_PORT=18501\nROOFWATCH_API_PORT=18700\n"
    (checkout / ".env").write_text(ports)
    (checkout / "settings").write_text(
        f"{ports}ROOFWATCH_ALERT_RULES=/etc/roofwatch/alerts.toml\nROOFWATCH_RETENTION_SAMPLES_DAYS=180\n"
    )
    try:
        _, created = operator.follow("Start")
        operator.token = next(word for word in created.split() if word.startswith("rw_"))
        yield operator
    finally:
        operator.run("docker compose --profile tls down --volumes")
        operator.run("docker rmi roofwatch:0.1.1 || true")


class Sink(socketserver.StreamRequestHandler):
    """An SMTP server that keeps the messages."""

    def handle(self) -> None:
        assert isinstance(self.server, MailServer)
        self.wfile.write(b"220 sink\r\n")
        for line in self.rfile:
            if line.upper().startswith(b"DATA"):
                self.wfile.write(b"354 go on\r\n")
                message = message_from_bytes(
                    b"".join(iter(self.rfile.readline, b".\r\n")), policy=default
                )
                self.server.mail.put(str(message["Subject"]))
            self.wfile.write(b"250 ok\r\n")


class MailServer(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    mail: queue.Queue[str]


@pytest.fixture(scope="module")
def mail_url(operator: Operator) -> Iterator[str]:
    """What a container reaches an SMTP server on this machine by."""
    network = json.loads(operator.run("docker network inspect roofwatch-test_outside"))[0]
    gateway = network["IPAM"]["Config"][0]["Gateway"]
    with MailServer((gateway, 0), Sink) as server:
        server.mail = operator.mail
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"mailto://{gateway}:{server.server_address[1]}?from=service@example.org&to=on-call@example.org"
        server.shutdown()


def test_the_image_holds_what_the_service_needs_and_nothing_else(operator: Operator) -> None:
    (image,) = json.loads(operator.run("docker image inspect roofwatch:0.1.0"))
    names = (
        "import importlib.metadata as m; print(*(package.name for package in m.distributions()))"
    )
    packages = operator.run(f"docker compose exec api python -c '{names}'")

    assert image["Size"] < 700e6
    assert not {"torch", "triton", "ray", "pytest", "mypy", "playwright", "pip"} & set(
        packages.split()
    )
    assert "cuda" not in packages
    assert image["Config"]["Labels"]["org.opencontainers.image.licenses"] == "Apache-2.0"
    bill = json.loads(operator.run("docker compose exec api cat /opt/roofwatch/sbom.cdx.json"))
    assert {part["name"].lower() for part in bill["components"]} == {
        name.lower() for name in packages.split()
    }


def test_the_service_can_change_neither_its_code_nor_its_machine(operator: Operator) -> None:
    assert operator.run("docker compose exec api id --user").strip() == "10001"
    assert "Read-only file system" in operator.run(
        "docker compose exec api touch /opt/roofwatch/new", status=1
    )
    assert operator.container("api")["HostConfig"]["CapDrop"] == ["ALL"]


def test_a_wrong_password_is_refused(operator: Operator) -> None:
    wrong = "docker compose exec --env ROOFWATCH_DATABASE_PASSWORD=wrong api roofwatch db status"

    assert "password authentication failed" in operator.run(wrong, status=2)


def test_a_regression_is_mailed_and_shown_over_https(
    operator: Operator, mail_url: str, tmp_path: Path
) -> None:
    operator.push(write_records(tmp_path / "before", 10_000, range(20)))
    (operator.checkout / "secrets" / "api.env").write_text(f"ALERT_MAIL_URL={mail_url}\n")
    (operator.checkout / "configuration" / "alerts.toml").write_text(RULES)
    operator.follow("Configure")
    assert "test" in operator.mail.get(timeout=60)
    operator.follow("Open it to others")

    operator.push(write_records(tmp_path / "after", 12_000, range(20, 41)))

    wait_for(
        lambda: operator.roofwatch(f"show regressions --project {PROJECT}"),
        "no regression was found",
    )
    subject = operator.mail.get(timeout=120)
    assert "rms_norm" in subject
    with launched() as browser:
        page = browser.new_context(ignore_https_errors=True).new_page()
        with page.expect_response("**/index.*.js") as script:
            page.goto("https://localhost/")
        assert script.value.headers["content-encoding"] in {"zstd", "gzip"}
        expect(page.get_by_test_id("stMain")).to_contain_text("rms_norm", timeout=TIMEOUT_MS)
        expect(page.get_by_test_id("stMain")).to_contain_text("20")


def test_nothing_is_lost_when_the_service_is_stopped_and_started(operator: Operator) -> None:
    count = operator.run_count()

    operator.run("docker compose --profile tls down")
    operator.run("make up")

    assert operator.run_count() == count > 0


@pytest.mark.parametrize("service", ["postgres", "api", "dashboard", "backup", "caddy"])
def test_a_killed_container_comes_back_and_nothing_is_lost(
    operator: Operator, service: str, tmp_path: Path
) -> None:
    count, killed = operator.run_count(), operator.container(service)["State"]["Pid"]

    operator.run(f"docker run --rm --pid host {IMAGES[0]} sh -c 'kill -9 {killed}'")

    wait_for(
        lambda: operator.container(service)["State"]["Pid"] not in {0, killed},
        f"{service} stays dead",
    )
    operator.run("docker compose up --detach --wait")
    operator.push(write_records(tmp_path / "more", 12_000, range(40, 41)))
    assert operator.run_count() == count + 1


def test_a_backup_is_restored_beside_the_database_and_in_its_place(
    operator: Operator, tmp_path: Path
) -> None:
    count = operator.run_count()

    shown = operator.follow("Back up")

    assert any(f"{count} run(s), {count} read back exactly as sent" in text for text in shown)
    assert list((operator.checkout / "backups").glob("*.dump"))
    assert operator.run_count() == count


def test_an_upgrade_keeps_everything(operator: Operator) -> None:
    count = operator.run_count()

    operator.follow("Upgrade")

    assert operator.run("docker compose exec api roofwatch --version").split() == [
        "roofwatch",
        "0.1.1",
    ]
    assert operator.run_count() == count
    operator.follow("Monitor")
    operator.follow("Size")
