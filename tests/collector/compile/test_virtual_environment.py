from pathlib import Path

import pytest

from roofwatch.collector.compile.virtual_environment import environment_with_triton
from roofwatch.collector.errors import ToolchainError


@pytest.mark.parametrize("version", ["", "latest", "3", "-r requirements.txt", "3.7.1 numpy", "https://a.b/c.whl"])
def test_only_a_version_number_reaches_pip(version: str, tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match=r"use for example 3\.7\.1"):
        environment_with_triton(version, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_version_that_pip_cannot_install_is_reported_with_pip_s_reason_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match=r"triton 0\.0\.1: pip cannot install it: .*triton==0\.0\.1"):
        environment_with_triton("0.0.1", tmp_path)
    assert list(tmp_path.iterdir()) == []
