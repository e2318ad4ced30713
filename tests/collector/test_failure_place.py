"""A failure of a kernel names the line of the user's code, and no list of modules."""

import sys
from importlib import import_module
from pathlib import Path

import pytest
import torch

from roofwatch.collector.jobs.case_call import failure_of
from roofwatch.collector.workers.fork_server import without_modules
from roofwatch.model.machine import Outcome

USER_CODE = """
import torch

def launch(x):
    return x + torch.ones(3)
"""


def test_an_exception_names_the_line_of_the_users_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "user_launcher.py").write_text(USER_CODE)
    monkeypatch.syspath_prepend(tmp_path)
    user_launcher = import_module("user_launcher")

    with pytest.raises(RuntimeError) as raised:
        user_launcher.launch(torch.ones(4))
    failure = failure_of(raised.value)

    assert failure.outcome is Outcome.CRASHED
    assert failure.message.endswith("(user_launcher.py:5, in launch)")
    assert failure.traceback is not None
    assert "return x + torch.ones(3)" in failure.traceback
    sys.modules.pop("user_launcher")


def test_the_list_of_extension_modules_is_left_out_of_a_crash() -> None:
    text = (
        "Fatal Python error: Segmentation fault\n\n"
        '  File "bench_x.py", line 3 in launch\n\n'
        "Extension modules: numpy._core._multiarray_umath, torch._C (total: 2)"
    )
    assert without_modules(text) == (
        'Fatal Python error: Segmentation fault\n\n  File "bench_x.py", line 3 in launch'
    )
