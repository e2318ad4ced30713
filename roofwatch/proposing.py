"""`roofwatch init`: find the kernels of a repository and propose files to measure them."""

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from roofwatch.argument_guesses import guess_inputs
from roofwatch.ci.messages import listed
from roofwatch.collector.git import find_repository, project_of, run_git
from roofwatch.install import PACKAGE_DIR
from roofwatch.install_source import InstallSource
from roofwatch.model.errors import SuiteError
from roofwatch.model.optional import map_optional
from roofwatch.terminal import print_error

_BENCHMARK = '''"""Kernels that `roofwatch init` found.

Write references; correct the guessed inputs, FLOP and bytes.
"""

{imports}from roofwatch import KernelSpec, UnsupportedError, cases

SHAPES = [{{"n_rows": 1024, "n_cols": 4096}}]


def missing_reference(**inputs):
    raise UnsupportedError("write the reference in plain PyTorch")
'''
_SPEC = """

{name}_spec = KernelSpec(
    name="{name}",
    inputs=lambda case, make: {{{inputs}}},
    reference=missing_reference,
    cases=cases(shapes=SHAPES, dtypes=["float32", "bfloat16"]{directions}),
    flop_count=lambda case: case["n_rows"] * case["n_cols"],
    memory_bytes=lambda case: 2 * case["n_rows"] * case["n_cols"] * case.itemsize,
    interpreted_shape={{"n_rows": 4}},
)


@{name}_spec.implementation("triton")
def {name}_triton({parameters}):
    return {name}_function{apply}({parameters})
"""
_OTHER_DEVICES = re.compile(r"_?(ascend|npu|xpu|musa|mlu|hpu)")
"""Folders of code for devices that roofwatch does not compile for."""
_CPU_BUILDS = "https://download.pytorch.org/whl/cpu"
_COMPILED = (".cu", ".cpp", ".cc", ".c", ".cuh", ".pyx")
_PIPELINE = ".gitlab-ci.yml"
_INCLUDED = ".gitlab/roofwatch.yml"
"""The jobs of a repository that has a pipeline already."""


@dataclass(frozen=True)
class FoundKernel:
    """A function that launches Triton kernels, or an `autograd.Function`."""

    name: str
    module: str
    function: str
    parameters: dict[str, str]
    """Required ones with their annotations."""
    is_differentiable: bool = False
    why_left_out: str | None = None
    """Why it cannot be called with the guessed inputs."""


TryOut = Callable[[Sequence[FoundKernel], tuple[Path, ...]], list[FoundKernel]]


def propose(
    folder: Path,
    source: InstallSource | None,
    *,
    is_plain: bool = False,
    try_out: TryOut = lambda kernels, _roots: list(kernels),
) -> tuple[list[FoundKernel], dict[Path, str]]:
    """Return the kernels of the repository around a folder, and texts of files for them by path,
    which may exist.

    Args:
        folder: In the repository.
        source: The roofwatch that the jobs use; without one, no jobs are written.
        is_plain: Write jobs that use no actions but GitHub's own.
        try_out: Calls kernels, and notes why that is not possible.

    Raises:
        SuiteError: the folder is not in a git repository.
    """
    root = _root_of(folder)
    project = project_of(root)
    # The name of a repository need not be a Python name.
    name = re.sub(r"\W", "_", PurePosixPath(project).name)
    benchmark = root / f"bench_{name}.py"
    kernels = try_out(find_kernels(root), (root, root / "src"))
    called = [kernel for kernel in kernels if kernel.why_left_out is None]
    files: dict[Path, str] = {}
    if kernels:
        files[benchmark] = _benchmark_of(called or kernels)
    files[root / "roofwatch.toml"] = _template("roofwatch.toml", project=project) + _build_of(root)
    if source is None:
        return kernels, files
    values = {
        "suite": benchmark.name,
        "setup": _setup_of(root),
        "repository": source.repository,
        "commit": source.commit,
    }
    if _is_on_gitlab(root):
        return kernels, files | _gitlab_files(root, source, values)
    reporting = source.requirement("github")
    values |= {"measuring": f"numpy {reporting}", "reporting": reporting}
    workflows = root / ".github" / "workflows"
    # A release of the package index has no commit to pin.
    is_plain = is_plain or not source.repository
    templates = {"roofwatch.yml": "plain.yml", "roofwatch-report.yml": "plain-report.yml"}
    for name, plain_name in templates.items():
        template = plain_name if is_plain else name
        files[workflows / name] = _template(template, **values)
    return kernels, files


def tried(kernels: Sequence[FoundKernel], import_roots: tuple[Path, ...]) -> list[FoundKernel]:
    """Call each kernel with the guessed inputs, and note why that is not possible."""
    from roofwatch.proposal_check import why_not_called

    by_name = {kernel.name: kernel for kernel in kernels}
    if kernels:
        print_error(f"calling {len(kernels)} kernels once with guessed inputs")

    def write(names: Sequence[str]) -> str:
        return _benchmark_of([by_name[name] for name in names])

    reasons = why_not_called(list(by_name), write, import_roots) if kernels else {}
    if reasons is None:
        return list(kernels)
    return [replace(kernel, why_left_out=reasons.get(kernel.name)) for kernel in kernels]


def _gitlab_files(root: Path, source: InstallSource, values: Mapping[str, str]) -> dict[Path, str]:
    pipeline = _template(
        "gitlab-ci.yml",
        **values,
        measuring=f"numpy {source.requirement()}",
        reporting=source.requirement("gitlab"),
    )
    existing = root / _PIPELINE
    if not existing.exists() or "roofwatch" in existing.read_text():
        return {existing: pipeline}
    # its list of stages would replace the existing one
    _, _, jobs = pipeline.partition("\n")
    return {root / _INCLUDED: jobs}


def _benchmark_of(kernels: Sequence[FoundKernel]) -> str:
    # Each by its own name: a change in one module affects the kernels of that module only.
    in_order = sorted(kernels, key=lambda kernel: (kernel.module, kernel.function))
    imports = "".join(
        f"from {kernel.module} import {kernel.function} as {kernel.name}_function\n"
        for kernel in in_order
    )
    specs = [_spec_of(kernel) for kernel in kernels]
    return "".join([_BENCHMARK.format(imports=imports), *specs])


def _setup_of(root: Path) -> str:
    """Return the command that installs a repository with its requirements, and torch and Triton if
    no file names them.
    """
    project = root / "pyproject.toml"
    requirements = root / "requirements.txt"
    names_torch = re.compile(r"\btorch\b")
    project_text = project.read_text(errors="replace") if project.exists() else ""
    requirements_text = requirements.read_text(errors="replace") if requirements.exists() else ""
    parts: list[str] = []
    # Requirements beside a project that names torch are often those of its developers.
    if requirements.exists() and not names_torch.search(project_text):
        parts.append("-r requirements.txt")
    if project.exists():
        parts.append(".")
    if not names_torch.search(project_text) and not names_torch.search(requirements_text):
        parts.append("torch triton")
    # The index of PyTorch has builds without CUDA, which are 5 GB smaller.
    return f"pip install --extra-index-url {_CPU_BUILDS} {' '.join(parts)}"


def _build_of(root: Path) -> str:
    """Return the table `[build]` for a repository that compiles something, else nothing."""
    listed = run_git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    sources = [PurePosixPath(name) for name in listed.split("\0") if name.endswith(_COMPILED)]
    is_built = (root / "setup.py").exists() or (root / "CMakeLists.txt").exists()
    if not sources or not is_built:
        return ""
    folders = sorted({f"{path.parts[0]}/**" for path in sources if len(path.parts) > 1})
    inputs = ", ".join(f'"{pattern}"' for pattern in [*folders, "setup.py", "pyproject.toml"])
    return (
        f"\n[build]\ninputs = [{inputs}]  # a commit that changes none of them is not built again\n"
    )


def _is_on_gitlab(root: Path) -> bool:
    """Whether the remote `origin` is on GitLab; on an own server, whether there is a pipeline."""
    remote = run_git(root, "config", "--default", "", "--get", "remote.origin.url")
    if "gitlab" in remote:
        return True
    return "github" not in remote and (root / _PIPELINE).exists()


def propose_instructions(folder: Path) -> dict[Path, str]:
    return {_root_of(folder) / "AGENTS.md": _template("AGENTS.md")}


def find_kernels(root: Path) -> list[FoundKernel]:
    """Find kernels in the files of a repository that git does not ignore, except tests and
    benchmark files.
    """
    listed = run_git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.py")
    trees: dict[str, ast.Module] = {}
    for name in filter(_may_declare_kernels, listed.split("\0")):
        try:
            trees[_module_of(name)] = ast.parse((root / name).read_bytes())
        except (OSError, SyntaxError, ValueError):  # deleted, or for another Python
            continue
    jitted: set[str] = set()
    for tree in trees.values():
        jitted.update(function.name for function in _functions_of(tree) if _is_jitted(function))
    # Two functions of one name would need one variable: the last one is proposed.
    by_name: dict[str, FoundKernel] = {}
    for module, tree in trees.items():
        by_name |= {kernel.name: kernel for kernel in _kernels_of(module, tree, jitted)}
    return list(by_name.values())


def _functions_of(node: ast.Module | ast.ClassDef) -> list[ast.FunctionDef]:
    return [child for child in node.body if isinstance(child, ast.FunctionDef)]


def _kernels_of(module: str, tree: ast.Module, jitted: set[str]) -> Iterator[FoundKernel]:
    classes = [
        node for node in tree.body if isinstance(node, ast.ClassDef) and _is_autograd_function(node)
    ]
    # A launcher that an autograd function calls is part of it, not a kernel of its own.
    used: set[str] = set()
    for node in classes:
        used.update(name.id for name in ast.walk(node) if isinstance(name, ast.Name))
    for node in classes:
        methods = {method.name: method for method in _functions_of(node)}
        if "forward" in methods:
            # The first parameter is the context.
            parameters = _parameters(methods["forward"], skip=1)
            yield FoundKernel(
                name=node.name.strip("_"),
                module=module,
                function=node.name,
                parameters=parameters,
                is_differentiable=True,
            )
    for function in _functions_of(tree):
        if function.name not in used and _launches(function, jitted):
            yield FoundKernel(
                name=function.name.strip("_"),
                module=module,
                function=function.name,
                parameters=_parameters(function),
            )


def _launches(function: ast.FunctionDef, jitted: set[str]) -> bool:
    """Whether a function contains `kernel[grid](...)` for a jitted kernel."""
    calls = (node.func for node in ast.walk(function) if isinstance(node, ast.Call))
    launched = (func.value for func in calls if isinstance(func, ast.Subscript))
    return any(ast.unparse(kernel).rpartition(".")[2] in jitted for kernel in launched)


def _is_jitted(function: ast.FunctionDef) -> bool:
    for decorator in function.decorator_list:
        name = ast.unparse(decorator).partition("(")[0]
        if name in {"triton.jit", "jit"}:
            return True
    return False


def _is_autograd_function(node: ast.ClassDef) -> bool:
    return any(ast.unparse(base).rpartition(".")[2] == "Function" for base in node.bases)


def _parameters(function: ast.FunctionDef, *, skip: int = 0) -> dict[str, str]:
    positional = [*function.args.posonlyargs, *function.args.args]
    required = positional[skip : len(positional) - len(function.args.defaults)]
    return {
        argument.arg: map_optional(ast.unparse, argument.annotation) or "" for argument in required
    }


def _spec_of(kernel: FoundKernel) -> str:
    guesses = guess_inputs(kernel.parameters)
    inputs = [f'"{name}": {source}' for name, source in guesses.items()]
    directions = ""
    apply = ""
    if kernel.is_differentiable:
        directions = ', directions=["fwd", "bwd"]'
        apply = ".apply"
    return _SPEC.format(
        name=kernel.name,
        inputs=", ".join(inputs),
        directions=directions,
        parameters=", ".join(kernel.parameters),
        apply=apply,
    )


def _may_declare_kernels(name: str) -> bool:
    # The list of git ends with an empty name.
    path = PurePosixPath(name or "-.py")
    is_test = (
        path.stem.startswith(("test_", "bench_"))
        or path.stem.endswith("_test")
        or path.stem == "conftest"
    )
    is_among_tests = bool({"tests", "test"} & set(path.parts[:-1]))
    can_be_imported = all(part.isidentifier() for part in path.with_suffix("").parts)
    folders = path.parts[:-1]
    is_elsewhere = any(_OTHER_DEVICES.fullmatch(folder) for folder in folders)
    return can_be_imported and not (is_test or is_among_tests or is_elsewhere)


def _module_of(name: str) -> str:
    """The module of a file, imported from the root or from `src`."""
    parts = PurePosixPath(name).with_suffix("").parts
    if parts[0] == "src" and len(parts) > 1:
        parts = parts[1:]
    if parts[-1] == "__init__":
        parts = parts[:-1]
    return ".".join(parts)


def _root_of(folder: Path) -> Path:
    root = find_repository(folder.resolve())
    if root is None:
        raise SuiteError(f"{folder}: not in a git repository; run git init first")
    return root


def _template(name: str, **values: str) -> str:
    text = (PACKAGE_DIR / "templates" / name).read_text()
    for key, value in values.items():
        text = text.replace(f"<{key}>", value)
    return text


def to_lines(kernels: Sequence[FoundKernel], states: Mapping[str, str]) -> list[str]:
    """What was found and written, and what to do next."""
    lines = [*_proposed_lines(kernels)]
    lines += [f"{state}: {path}" for path, state in states.items()]
    for path in states:
        if PurePosixPath(path).name.startswith("bench_"):
            lines.append(
                f"next: write the references in {path} and correct its inputs; then: roofwatch "
                f"check {path}"
            )
        if path.endswith(_INCLUDED):
            lines.append(
                f"next: add to {_PIPELINE}: include: [{{ local: {_INCLUDED} }}], and the stages "
                f"measure and report"
            )
    if not any(PurePosixPath(path).suffix == ".yml" for path in states):
        lines.append(
            "no CI jobs: no other machine can install this roofwatch from its folder; "
            "name a commit with --from OWNER/NAME@SHA"
        )
    if any(path.endswith("roofwatch-report.yml") for path in states):
        lines.append(
            "the pull request that adds the workflows shows nothing: GitHub reports from the "
            "default branch; merge it, then open another"
        )
    return [*lines, "kernels launched elsewhere: roofwatch init --capture TEST.py"]


def _proposed_lines(kernels: Sequence[FoundKernel]) -> Iterator[str]:
    """How many kernels can be called, their names, and one line per reason for the others."""
    names_by_reason: dict[str, list[str]] = {}
    called: list[str] = []
    for kernel in kernels:
        name = f"{kernel.module}.{kernel.function}"
        if kernel.why_left_out is None:
            called.append(name)
            continue
        # one missing package keeps many modules from being imported, each at a line of its own
        missing = re.search(r"No module named '[^']+'", kernel.why_left_out)
        reason = missing[0] if missing else kernel.why_left_out
        names_by_reason.setdefault(reason, []).append(name)
    yield f"proposed: {len(called)} of {len(kernels)} kernels that were found"
    yield from (f"found: {name}" for name in called)
    for reason, names in names_by_reason.items():
        yield f"not proposed: {listed(names)}: {reason}"
