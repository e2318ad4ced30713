"""The pytest plugin's part that imports tests of GPU code on a machine without a GPU."""

import os
import re
from collections.abc import Generator
from pathlib import Path

import pytest

NO_DRIVER = "0 active drivers"
"""In the message of Triton if it finds no GPU."""
WAY_OUT = (
    "Triton finds no GPU; run pytest with TRITON_INTERPRET=1, which checks kernels without one"
)
NO_TIME = "a Triton kernel has no time without a GPU: its result was checked, nothing was measured"
_FRAME = re.compile(r"^(\S+\.py):(\d+): in ", re.MULTILINE)
_RETRIED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Import a test file once more with the answers of a GPU that is not there, for the
    interpreter; else say what to do.
    """
    report = yield
    is_retried = collector.stash.get(_RETRIED, False)
    if report.passed or is_retried or not isinstance(collector, pytest.Module):
        return report
    text = str(report.longrepr)
    if os.environ.get("TRITON_INTERPRET") != "1":
        if NO_DRIVER in text:
            report.longrepr = f"{_place_in(text)}: {WAY_OUT}"
        return report
    collector.stash[_RETRIED] = True
    again = _collected_as_on_gpu(collector)
    if again is None or not again.passed:
        return report
    return again


def _collected_as_on_gpu(collector: pytest.Module) -> pytest.CollectReport | None:
    """Collect a file on a machine that answers as one with a GPU; None if it has one."""
    try:
        import torch

        from roofwatch.collector.compile.target_device import install_driver, pretending_driver
    except ImportError:
        return None
    from roofwatch.collector.compile.targets import DEFAULT_TARGETS
    from roofwatch.collector.suite import forget_failed_imports

    if torch.cuda.is_available():
        return None
    forget_failed_imports()
    with pretending_driver(DEFAULT_TARGETS[0]):
        report: pytest.CollectReport = collector.ihook.pytest_make_collect_report(
            collector=collector
        )
    # launchers ask again when they are called
    install_driver(DEFAULT_TARGETS[0])
    return report


def _place_in(traceback_text: str) -> str:
    """File and line of the innermost frame that is not a package's; of pytest's own format."""
    frames = [
        (file, line)
        for file, line in _FRAME.findall(traceback_text)
        if "site-packages" not in Path(file).parts
    ]
    if not frames:
        return "this file"
    file, line = frames[-1]
    return f"{file}:{line}"
