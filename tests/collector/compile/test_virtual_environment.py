from pathlib import Path

import pytest

from roofwatch.collector.compile.virtual_environment import (
    environment_with_triton,
    put_in_place,
)
from roofwatch.collector.errors import ToolchainError


@pytest.mark.parametrize("version", ["", "latest", "3", "-r requirements.txt", "3.7.1 numpy", "https://a.b/c.whl"])
def test_what_is_not_a_version_never_reaches_pip(version: str, tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match=r"use for example 3\.7\.1"):
        environment_with_triton(version, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_version_that_pip_cannot_install_is_named_with_pip_s_reason_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match=r"triton 0\.0\.1: pip cannot install it: .*triton==0\.0\.1"):
        environment_with_triton("0.0.1", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(ToolchainError, match="file: no environment can be made there"):
        environment_with_triton("3.7.1", tmp_path / "file")


def test_of_two_that_make_one_environment_at_once_the_first_stays(tmp_path: Path) -> None:
    first, second, place = tmp_path / "first", tmp_path / "second", tmp_path / "triton-3.7.1"
    for folder in (first, second):
        folder.mkdir()
        (folder / "made_by").write_text(folder.name)

    put_in_place(first, place)
    put_in_place(second, place)

    assert (place / "made_by").read_text() == "first"
