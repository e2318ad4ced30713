"""Where build backends other than setuptools find a distribution's packages."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from roofwatch.collector.build.toml_file import table, texts


@dataclass(frozen=True)
class Project:
    folder: Path
    document: dict[str, Any]
    """Its `pyproject.toml`."""
    name: str
    """Normalised."""


@dataclass(frozen=True)
class Layout:
    roots: tuple[Path, ...]
    """Folders that packages are imported from, as far as the configuration says."""
    is_built: bool = False


def hatch_layout(project: Project) -> Layout:
    """Read `tool.hatch.build`, whose target `wheel` comes before the rest.

    Source: https://hatch.pypa.io/latest/config/build/
    """
    build = table(project.document, "tool", "hatch", "build")
    wheel = table(build, "targets", "wheel")
    options = {**build, **wheel}
    hooks = {**table(build, "hooks"), **table(wheel, "hooks")}
    is_built = bool(hooks) or bool(options.get("force-include"))
    packages = texts(options.get("packages"))
    roots = [project.folder / PurePosixPath(package).parent for package in packages]
    sources = options.get("sources")
    if isinstance(sources, dict):
        # Each entry moves a folder in the package; an empty target is its root.
        for path, target in sources.items():
            is_renamed = PurePosixPath(path).name != str(target) and target != ""
            is_built = is_built or is_renamed
            root = path
            if target != "":
                root = PurePosixPath(path).parent
            roots.append(project.folder / root)
    else:
        roots += [project.folder / source for source in texts(sources)]
    if roots:
        return Layout(tuple(roots), is_built)
    return Layout(_usual_roots(project), is_built)


def poetry_layout(project: Project) -> Layout:
    """Read `tool.poetry.packages`.

    Source: https://python-poetry.org/docs/pyproject/#packages
    """
    poetry = table(project.document, "tool", "poetry")
    roots: list[Path] = []
    is_built = bool(poetry.get("build"))
    # A package with `to` is installed under another name.
    for package in poetry.get("packages") or ():
        if isinstance(package, dict):
            is_built = is_built or "to" in package
            roots.append(project.folder / str(package.get("from", ".")))
    return Layout(tuple(roots) or _usual_roots(project), is_built)


def flit_layout(project: Project) -> Layout:
    """The module lies in the folder or in `src`.

    Source: https://flit.pypa.io/en/stable/pyproject_toml.html
    """
    return Layout(_usual_roots(project))


def uv_layout(project: Project) -> Layout:
    """Read `tool.uv.build-backend`.

    Source: https://docs.astral.sh/uv/concepts/build-backend/
    """
    options = table(project.document, "tool", "uv", "build-backend")
    return Layout((project.folder / str(options.get("module-root", "src")),))


def pdm_layout(project: Project) -> Layout:
    """Read `tool.pdm.build`.

    Source: https://backend.pdm-project.org/build_config/
    """
    options = table(project.document, "tool", "pdm", "build")
    is_built = "custom-hook" in options or "run-setuptools" in options
    if "package-dir" in options:
        return Layout((project.folder / str(options["package-dir"]),), is_built)
    return Layout(_usual_roots(project), is_built)


def compiled_layout(project: Project) -> Layout:
    """A backend that compiles. The folders of its Python packages tell what the tree contains."""
    scikit = table(project.document, "tool", "scikit-build", "wheel")
    packages = scikit.get("packages")
    # A table maps import names to folders; a list holds the folders alone.
    if isinstance(packages, dict):
        packages = list(packages.values())
    roots = [project.folder / PurePosixPath(package).parent for package in texts(packages)]
    source = table(project.document, "tool", "maturin").get("python-source")
    if isinstance(source, str):
        roots.append(project.folder / source)
    return Layout(tuple(roots) or _usual_roots(project), is_built=True)


BACKENDS: Mapping[str, Callable[[Project], Layout]] = {
    "flit": flit_layout,
    "flit_core": flit_layout,
    "hatchling": hatch_layout,
    "maturin": compiled_layout,
    "mesonpy": compiled_layout,
    "pdm": pdm_layout,
    "poetry": poetry_layout,
    "scikit_build_core": compiled_layout,
    "uv_build": uv_layout,
}
"""By the first part of `build-backend`."""


def _usual_roots(project: Project) -> tuple[Path, ...]:
    # The layouts of the Python Packaging User Guide.
    """The folder or its `src`, whichever has the module of the distribution's name."""
    module = project.name.replace("-", "_")
    roots = (project.folder / "src", project.folder)
    for root in roots:
        if (root / module).is_dir() or (root / f"{module}.py").is_file():
            return (root,)
    return tuple(root for root in roots if root.is_dir())
