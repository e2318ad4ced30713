"""Where a distribution's packages are found, by the configuration of each build backend."""

from pathlib import Path

import pytest

from roofwatch.collector.build.distributions import find_distributions, read_distribution
from roofwatch.collector.build.prepare import prepare_suite
from tests.git_repository import commit_all, make_repository
from tests.packaged import write


def backend(name: str, more: str = "") -> str:
    return (
        f'[build-system]\nrequires = []\nbuild-backend = "{name}"\n'
        f'[project]\nname = "qk"\nversion = "1"\n{more}'
    )


SETUPTOOLS = "setuptools.build_meta"
PURE = {
    "setuptools finds": (
        "python",
        {
            "pyproject.toml": backend(
                SETUPTOOLS, '[tool.setuptools.packages.find]\nwhere=["python"]'
            )
        },
    ),
    "setuptools is told": (
        "lib",
        {"pyproject.toml": backend(SETUPTOOLS, '[tool.setuptools.package-dir]\n"" = "lib"')},
    ),
    "setuptools is told of one package": (
        "lib",
        {"pyproject.toml": backend(SETUPTOOLS, '[tool.setuptools.package-dir]\nqk = "lib/qk"')},
    ),
    "setup.cfg": (
        "python",
        {"setup.cfg": "[metadata]\nname = qk\n[options]\npackage_dir =\n    = python\n"},
    ),
    "setup.py": (
        "python",
        {
            "setup.py": "from setuptools import find_packages, setup\nROOT = 'python'\n"
            "setup(name='qk', package_dir={'': ROOT}, packages=find_packages(ROOT))\n"
        },
    ),
    "hatch packages": (
        "python",
        {
            "pyproject.toml": backend(
                "hatchling.build", '[tool.hatch.build.targets.wheel]\npackages = ["python/qk"]'
            )
        },
    ),
    "hatch sources": (
        "lib",
        {
            "pyproject.toml": backend(
                "hatchling.build", '[tool.hatch.build.targets.wheel]\nsources = ["lib"]'
            )
        },
    ),
    "poetry": (
        "python",
        {
            "pyproject.toml": '[build-system]\nbuild-backend = "poetry.core.masonry.api"\n'
            '[tool.poetry]\nname = "qk"\npackages = [{include = "qk", from = "python"}]\n'
        },
    ),
    "flit": ("src", {"pyproject.toml": backend("flit_core.buildapi")}),
    "pdm": (
        "lib",
        {"pyproject.toml": backend("pdm.backend", '[tool.pdm.build]\npackage-dir = "lib"')},
    ),
    "uv": (
        "lib",
        {"pyproject.toml": backend("uv_build", '[tool.uv.build-backend]\nmodule-root = "lib"')},
    ),
}


@pytest.mark.parametrize("name", PURE)
def test_packages_are_found_by_the_configuration_of_the_backend(name: str, tmp_path: Path) -> None:
    root, files = PURE[name]
    write(tmp_path, {**files, f"{root}/qk/__init__.py": ""})

    found = read_distribution(tmp_path)

    assert found is not None
    assert (found.name, found.is_built) == ("qk", False)
    assert tmp_path / root in found.roots


BUILT = {
    "scikit-build-core": backend(
        "scikit_build_core.build", '[tool.scikit-build]\nwheel.packages = ["python/qk"]'
    ),
    "meson": backend("mesonpy"),
    "maturin": backend("maturin", '[tool.maturin]\npython-source = "python"'),
    "a backend of its own": backend("build_qk").replace(
        "requires", 'backend-path = ["."]\nrequires'
    ),
    "an extension": backend(
        SETUPTOOLS, '[[tool.setuptools.ext-modules]]\nname = "qk._c"\nsources = ["qk.c"]'
    ),
    "a package under another name": backend(
        SETUPTOOLS, '[tool.setuptools.package-dir]\nqk = "source"'
    ),
    "a version file": backend(SETUPTOOLS, '[tool.setuptools_scm]\nversion_file = "qk/_version.py"'),
    "a hook of hatch": backend("hatchling.build", "[tool.hatch.build.hooks.custom]"),
}


@pytest.mark.parametrize("name", BUILT)
def test_what_cannot_be_imported_from_its_tree_is_built(name: str, tmp_path: Path) -> None:
    write(tmp_path, {"pyproject.toml": BUILT[name], "python/qk/__init__.py": ""})

    found = read_distribution(tmp_path)

    assert found is not None
    assert found.is_built


@pytest.mark.parametrize(
    "call",
    [
        "setup(name='qk', ext_modules=[Extension('qk._c', ['qk.c'])])",
        "setup(name='qk', ext_modules=extensions())",
        "setup(name='qk', package_dir=find_folders())",
        "setup(**options())",
    ],
)
def test_a_setup_file_that_may_compile_is_built(call: str, tmp_path: Path) -> None:
    write(tmp_path, {"setup.py": f"from setuptools import Extension, setup\n{call}\n"})

    found = read_distribution(tmp_path)

    assert found is not None
    assert found.is_built


def test_a_file_that_only_configures_tools_is_no_distribution(tmp_path: Path) -> None:
    write(tmp_path, {"pyproject.toml": "[tool.ruff]\nline-length = 100\n"})

    assert read_distribution(tmp_path) is None


def test_copies_of_other_projects_are_no_distributions_of_a_tree(tmp_path: Path) -> None:
    project = backend("flit_core.buildapi")
    files = {
        "packages/qk/pyproject.toml": project,
        "packages/tools/pyproject.toml": project.replace("qk", "tools"),
        "third_party/other/pyproject.toml": project.replace("qk", "other"),
    }
    write(tmp_path, files)

    found = find_distributions(tmp_path, list(files), tmp_path / "packages/tools/bench_tools.py")

    assert [each.name for each in found] == ["tools", "qk"], "the one around the suite first"


def test_the_root_comes_after_folders_of_packages_but_before_a_flat_one(tmp_path: Path) -> None:
    flat = backend(SETUPTOOLS)
    write(
        tmp_path,
        {
            "pyproject.toml": backend("pdm.backend", '[tool.pdm.build]\npackage-dir = "lib"'),
            "lib/qk/__init__.py": "",
            "packages/tools/pyproject.toml": flat,
            "packages/tools/tools/__init__.py": "",
            "bench_qk.py": "import qk",
        },
    )
    commit_all(make_repository(tmp_path))

    source = prepare_suite(tmp_path / "bench_qk.py", tmp_path)

    assert source.import_roots == (tmp_path / "lib", tmp_path, tmp_path / "packages" / "tools")
    assert (source.root, source.name, source.builds) == (tmp_path, "bench_qk.py", ())
