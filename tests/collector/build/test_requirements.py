"""What a tree requires, by its requirement files, lock files and distributions."""

from pathlib import Path

from roofwatch.collector.build.requirements import (
    declared_dependencies,
    locked_versions,
    read_requirements,
)
from tests.packaged import write

FILES = {
    "requirements.txt": "# main\nTriton==3.6.0\n-r more.txt\n--index-url https://a:b@host/\n"
    "secret @ https://user:token@host/secret.whl\nnumpy>=2 ; python_version > '3'\n",
    "requirements/test.txt": "pytest[x]>=8  # tools\n",
    "notes.txt": "nothing==1\n",
    "third_party/other/requirements.txt": "other==1\n",
    "pyproject.toml": '[project]\nname = "qk"\ndependencies = ["numpy<3", "torch"]\n'
    '[dependency-groups]\ndev = ["ruff"]\n'
    "[tool.poetry.dependencies]\npython = '^3.11'\neinops = {version = '^0.8'}\n",
    "setup.cfg": "[options]\ninstall_requires =\n    scipy>=1\n",
    "uv.lock": '[[package]]\nname = "torch"\nversion = "2.13.0"\n',
}


def test_all_declarations_of_a_package_are_joined(tmp_path: Path) -> None:
    write(tmp_path, FILES)

    assert read_requirements(tmp_path, list(FILES)) == {
        "einops": "^0.8",
        "numpy": "<3, >=2",
        "pytest": ">=8",
        "ruff": "",
        "scipy": ">=1",
        "secret": "@ https://host/secret.whl",
        "torch": "==2.13.0",
        "triton": "==3.6.0",
    }


def test_an_environment_gets_what_is_declared_in_the_versions_that_are_locked(
    tmp_path: Path,
) -> None:
    write(tmp_path, FILES)

    assert declared_dependencies(tmp_path) == ["numpy<3", "torch", "scipy>=1"]
    assert locked_versions(tmp_path) == ["torch==2.13.0"]
