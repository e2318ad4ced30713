"""The sandbox from inside: what a process can still do. Layers that this machine lacks are skipped
with the reason.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from roofwatch.collector.workers.sandbox import LAYERS, Policy, essential
from roofwatch.install import INSTALL_ROOT

_PROGRAM = """
import json, os, signal, socket, sys
sys.path.insert(0, sys.argv[1])
from roofwatch.collector.workers.sandbox import Policy, isolate
missing = isolate(Policy(**json.loads(sys.argv[2])))
found = {"missing": dict(missing)}
for name, action in json.loads(sys.argv[3]).items():
    try:
        exec(action)
        found[name] = "done"
    except OSError as error:
        found[name] = type(error).__name__
    except MemoryError:
        found[name] = "MemoryError"
print(json.dumps(found), flush=True)
"""


def try_in_sandbox(tmp_path: Path, actions: dict[str, str]) -> dict[str, Any]:
    """What became of each action in a sandbox: `done`, or the name of the error."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    policy = Policy(
        scratch=str(scratch),
        scratch_bytes=2**20,
        readable=[str(INSTALL_ROOT), *(path for path in sys.path if path and Path(path).exists())],
        memory_bytes=2**30,
        mapped_bytes=2**30,
        cpu_seconds=20,
        process_count=64,
        cpu=None,
        groups=[],
    )
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            _PROGRAM,
            str(INSTALL_ROOT),
            json.dumps(asdict(policy)),
            json.dumps(actions),
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=scratch,
        start_new_session=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_process_in_the_sandbox_reaches_nothing_outside(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("token")
    found = try_in_sandbox(
        tmp_path,
        {
            "writes outside": f"open({str(tmp_path / 'made')!r}, 'w')",
            "reads a secret": f"open({str(secret)!r}).read()",
            "writes in the scratch folder": "open('made', 'w').write('x')",
            "fills the scratch folder": "open('large', 'wb').write(bytes(2**22))",
            "opens a socket": "socket.socket()",
            "signals the parent": f"os.kill({os.getpid()}, 0)",
            "takes much memory": "bytearray(2**33)",
            "leaves its group": "before = os.getpgid(0); os.setpgid(0, 0); assert os.getpgid(0) "
            "== before",
        },
    )
    missing = found["missing"]

    assert missing.keys() <= set(LAYERS)
    if {"landlock", "mount_namespace"} <= missing.keys():
        pytest.skip(f"no layer for files: {missing}")
    assert not (tmp_path / "made").exists()
    assert found["writes outside"] != "done"
    assert found["writes in the scratch folder"] == "done"
    assert found["fills the scratch folder"] == "OSError"
    assert found["takes much memory"] == "MemoryError"
    if "landlock" not in missing:
        assert found["reads a secret"] == "PermissionError"
    if "seccomp" not in missing:
        assert found["opens a socket"] == "PermissionError"
        assert found["signals the parent"] != "done"


def test_a_complete_sandbox_needs_no_other_user_for_ordinary_users(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    missing = {"own_user": "only root", "cgroup": "not delegated"}
    monkeypatch.setattr(os, "getuid", lambda: 1000)

    assert essential(missing) == {}
    assert essential({**missing, "seccomp": "not installed"}) == {"seccomp": "not installed"}


def test_root_needs_one_layer_that_limits_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 0)

    assert essential({"own_user": "unreadable"}) == {}
    assert essential({"own_user": "unreadable", "cgroup": "read-only"}).keys() == {
        "own_user",
        "cgroup",
    }
