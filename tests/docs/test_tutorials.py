"""The commands of the tutorials, run in order as a reader would."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from roofwatch.demo.scenario import make_repository
from roofwatch.model.machine import Outcome
from roofwatch.model.record import RunRecord
from tests.docs.markdown import ROOT, shell_lines

pytestmark = pytest.mark.slow

TUTORIALS = ROOT / "docs" / "tutorials"


class Reader:
    """A shell in a git repository, with the environment of the tests activated and data of
    its own.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.variables = {
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "NO_COLOR": "1",
            "XDG_DATA_HOME": str(folder.parent / "data"),
            "XDG_CONFIG_HOME": str(folder.parent / "configuration"),
        }

    def run(self, line: str, *statuses: int) -> str:
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=self.folder,
            env=self.variables,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode in (statuses or (0,)), (
            f"{line}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        )
        return done.stdout

    @contextmanager
    def background(self, line: str, url: str) -> Iterator[None]:
        """Run a server and wait until the address answers."""
        process = subprocess.Popen(
            ["bash", "-c", f"exec {line}"], cwd=self.folder, env=self.variables
        )
        try:
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline and process.poll() is None:
                try:
                    httpx.get(url, timeout=5)
                    break
                except httpx.TransportError:
                    time.sleep(0.2)
            else:
                pytest.fail(f"{line} does not answer")
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    folder = tmp_path / "kernels"
    make_repository(folder)
    return Reader(folder)


def lines_of(tutorial: str, section: str = "") -> list[str]:
    """Return what the reader types, in one section or the whole page."""
    lines = shell_lines(TUTORIALS / tutorial, section)
    assert lines, f"{tutorial} {section}: no commands"
    return lines


def files_of(tutorial: str, verb: str = "as") -> dict[str, str]:
    """Return the files that the page tells the reader to save (`as`) or to extend (`to`): texts by
    name.
    """
    text = (TUTORIALS / tutorial).read_text()
    return dict(re.findall(rf"{verb} `(\w+\.py)`[^`]*```python\n(.*?)```", text, re.DOTALL))


def test_the_first_regression_is_confirmed(reader: Reader) -> None:
    (line,) = lines_of("first-regression.md", "4. Confirm it")

    short = line.replace("--blocks 8", "--blocks 2 --budget 0")

    assert re.search("regressed|improved|inconclusive|unchanged", reader.run(short, 0, 1, 2))


def test_a_kernel_of_your_own_is_checked_measured_compiled_compared_and_diagnosed(
    reader: Reader,
) -> None:
    ((name, text),) = files_of("your-kernel.md").items()
    (reader.folder / name).write_text(text)
    check, run, static, ab, diagnose = lines_of("your-kernel.md")

    assert "incorrect" not in reader.run(check)
    reader.run(f"{run} --targets sm_90")
    record = RunRecord.read(reader.folder / "record.json")
    assert {one.outcome for one in record.accuracies} == {Outcome.OK}
    assert Outcome.OK in {one.outcome for one in record.measurements}
    assert "_scale_add_kernel" in reader.run(static)
    reader.run(f"git add {name} && git commit -q -m 'Add scale_add'")
    (reader.folder / name).write_text(text.replace("2 * x + y, mask", "x + x + y, mask"))
    assert "unchanged" in reader.run(f"{ab} --budget 0", 0, 2)
    assert "scale_add" in reader.run(diagnose)


def test_a_slow_training_run_becomes_a_pull_request_with_a_faster_kernel(reader: Reader) -> None:
    for name, text in files_of("slow-training.md").items():
        (reader.folder / name).write_text(text)
    lines = iter(lines_of("slow-training.md"))

    profile = reader.run(f"{next(lines)} 2>&1")
    assert profile.index("aten::round") < profile.index("Optimizer")
    reader.run(next(lines))
    reader.run(next(lines))
    diagnosed = reader.run(f"{next(lines)} --targets sm_90")
    speedups = re.findall(r"at most ([\d.]+) times as fast", diagnosed)
    assert max(map(float, speedups)) > 3
    assert "after the last whole tile of 256" in reader.run(next(lines), 1)
    reader.run(next(lines))
    assert "checked: 4 ok" in reader.run(next(lines))
    static = reader.run(next(lines))
    assert "_gradient_kernel" in static
    assert "; no spills; " in static
    # a busy machine needs more than the usual budget for all checks in the interpreter
    assert "unconfirmed" in reader.run(f"{next(lines)} --budget 900", 2)
    for name, text in files_of("slow-training.md", "to").items():
        (reader.folder / name).write_text((reader.folder / name).read_text() + text)
    reader.run(next(lines))
    reader.run(next(lines))
    reader.run(next(lines), 0, 2)
    assert "`triton`" in reader.run(next(lines), 0, 2)
    assert list(lines) == []


def test_a_benchmark_moved_from_pytest_benchmark_runs(reader: Reader) -> None:
    ((name, text),) = files_of("migrating.md").items()
    (reader.folder / name).write_text(text)

    assert "softmax" in reader.run(f"roofwatch run {name} --output record.json")


def test_the_service_without_docker_takes_records(reader: Reader) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    create, serve = lines_of("service.md", "Without Docker")[:2]
    run, push, ingest = lines_of("service.md", "Send records")
    (calibrate,) = lines_of("service.md", "Calibrate the runner")
    reader.run("git remote add origin https://github.com/owner/kernels.git")

    reader.variables["ROOFWATCH_TOKEN"] = reader.run(create).split()[0]
    reader.run(f"{run} --blocks 1 --targets sm_90 --kernel rms_norm", 0, 1)
    with reader.background(serve.replace("8700", str(port)), f"http://127.0.0.1:{port}/healthz"):
        reader.run(push.replace("https://roofwatch.example", f"http://127.0.0.1:{port}"))
    reader.run(ingest)
    assert reader.run("roofwatch show runs --project owner/kernels --json").count('"run_id"') == 1
    reader.run(calibrate.replace("--blocks 18", "--blocks 3 --kernel rms_norm"))
