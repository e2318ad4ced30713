"""What the program of a job can reach of the machine that carries it out."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROBE = """
import json, os, socket, sys
from pathlib import Path
from roofwatch.collector.workers.program_sandbox import isolate_program

place, port, network = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
try:
    isolate_program([str(place / "work")], home=place / "home", has_network=network == "network")
except OSError as error:
    print(json.dumps(str(error)))
    raise SystemExit

def tried(action):
    try:
        return action()
    except OSError as error:
        return type(error).__name__

def connect():
    with socket.create_connection(("127.0.0.1", port), timeout=5):
        return "connected"

home = place / "home"
print(json.dumps({
    "work": tried(lambda: (place / "work" / "new").write_text("x")),
    "elsewhere": tried(lambda: (place / "new").write_text("x")),
    "netrc": tried(lambda: (home / ".netrc").read_text()),
    "ssh": tried(lambda: os.listdir(home / ".ssh")),
    "kernels": tried(lambda: (home / "kernels.py").read_text()),
    "server": tried(connect),
    "processes": [name for name in os.listdir("/proc") if name.isdigit()],
    "daemons": tried(lambda: os.listdir("/run/user")),
}))
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "id_ed25519").write_text("a key")
    (home / ".netrc").write_text("a password")
    (home / "kernels.py").write_text("a kernel")
    (tmp_path / "work").mkdir()
    return tmp_path


def probe(place: Path, network: str) -> dict[str, Any]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        done = subprocess.run(
            [sys.executable, "-c", PROBE, str(place), str(port), network],
            capture_output=True,
            text=True,
            check=True,
            env=os.environ | {"HOME": str(place / "home")},
        )
    seen = json.loads(done.stdout)
    if isinstance(seen, str):
        pytest.skip(f"this machine cannot isolate a job: {seen}")
    return dict(seen)


def test_a_job_reaches_only_its_folder(
    place: Path,
) -> None:
    seen = probe(place, "no-network")

    assert seen["work"] == 1
    assert seen["elsewhere"] == "OSError"
    assert not (place / "new").exists()
    assert (seen["netrc"], seen["ssh"], seen["kernels"]) == ("", [], "a kernel")
    assert seen["server"] != "connected"
    assert seen["processes"] == ["1"]
    assert seen["daemons"] in ([], "FileNotFoundError")
    assert (place / "home" / ".netrc").read_text() == "a password"


def test_a_job_with_network_reaches_servers_but_no_secret(place: Path) -> None:
    seen = probe(place, "network")

    assert seen["server"] == "connected"
    assert (seen["netrc"], seen["ssh"]) == ("", [])
