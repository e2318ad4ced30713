"""`roofwatch init`: find the kernels of a repository and propose files to measure them."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

from roofwatch.ci.messages import count_of, listed
from roofwatch.collector.git import find_repository, project_of, run_git
from roofwatch.console.terminal import console
from roofwatch.install import PACKAGE_DIR
from roofwatch.model.errors import SuiteError
from roofwatch.proposals.argument_guesses import guess_inputs, matrix_count
from roofwatch.proposals.found_kernels import FoundKernel, find_function, find_kernels
from roofwatch.proposals.install_source import InstallSource

_BENCHMARK = '''"""Kernels that `roofwatch init` found.

Write references; correct the guessed inputs, FLOP and bytes. A reference is called with float64
inputs: it must not convert them to float32 itself.
"""

{imports}from roofwatch import KernelSpec, UnsupportedError, cases

SHAPES = [{{"n_rows": 1024, "n_cols": 4096}}]
# checked and not timed: rows that no block divides; remove those that a kernel need not support
ODD_SHAPES = [
    {{"n_rows": 3, "n_cols": 33}},
    {{"n_rows": 5, "n_cols": 4097}},
    {{"n_rows": 1, "n_cols": 4095}},
]


def missing_reference(**inputs):
    raise UnsupportedError("write the reference in plain PyTorch")
'''
_SPEC = """

{name}_spec = KernelSpec(
    name="{name}",
    inputs=lambda case, make: {{{inputs}}},
    reference=missing_reference,
    cases=cases(shapes=SHAPES, dtypes=["float32", "bfloat16"]{directions}),
    edges=cases(shapes=ODD_SHAPES, dtypes=["float32"]{directions}, tags=["may_refuse"]),
    flop_count=lambda case: case["n_rows"] * case["n_cols"],
    # the matrices among the inputs, and a result like them
    memory_bytes=lambda case: {matrix_count} * case["n_rows"] * case["n_cols"] * case.itemsize,
    interpreted_shape={{"n_rows": 4}},
)


@{name}_spec.implementation("{language}")
def {name}_{language}({parameters}):
    return {name}_function{apply}({parameters})
"""
_CPU_BUILDS = "https://download.pytorch.org/whl/cpu"
_COMPILED = (".cu", ".cpp", ".cc", ".c", ".cuh", ".pyx")
_PIPELINE = ".gitlab-ci.yml"
_INCLUDED = ".gitlab/roofwatch.yml"
"""The jobs of a repository that has a pipeline already."""


TryOut = Callable[[Sequence[FoundKernel], tuple[Path, ...]], list[FoundKernel]]


def propose(
    folder: Path,
    source: InstallSource | None,
    *,
    is_plain: bool = False,
    function: str | None = None,
    only_benchmark: bool = False,
    with_history: bool = False,
    try_out: TryOut = lambda kernels, _roots: list(kernels),
) -> tuple[list[FoundKernel], dict[Path, str]]:
    """Return the kernels of the repository around a folder, and texts of files for them by path,
    which may exist.

    Args:
        folder: In the repository.
        source: The roofwatch that the jobs use; without one, no jobs are written.
        is_plain: Write jobs that use no actions but GitHub's own.
        function: Propose this one, such as `my_ops.py::gelu`, instead of those that are found.
        only_benchmark: Leave out settings and jobs.
        with_history: Also write a job that keeps the history on a branch.
        try_out: Calls kernels, and notes why that is not possible.

    Raises:
        SuiteError: the folder is not in a git repository, or the function does not exist.
    """
    root = _root_of(folder)
    project = project_of(root)
    # The name of a repository need not be a Python name.
    name = re.sub(r"\W", "_", PurePosixPath(project).name)
    if function is None:
        candidates = find_kernels(root)
    else:
        candidates = [find_function(root, function)]
        name = candidates[0].name
    benchmark = root / f"bench_{name}.py"
    kernels = try_out(candidates, (root, root / "src"))
    called = [kernel for kernel in kernels if kernel.why_left_out is None]
    files: dict[Path, str] = {}
    if kernels:
        files[benchmark] = _benchmark_of(called or kernels)
    if only_benchmark:
        return kernels, files
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
    if with_history:
        files[workflows / "history.yml"] = _template(
            "history.yml",
            **values,
            history=f"numpy {source.requirement()}",
            server=source.requirement("server"),
        )
    return kernels, files


def tried(kernels: Sequence[FoundKernel], import_roots: tuple[Path, ...]) -> list[FoundKernel]:
    """Call each kernel with the guessed inputs, and note why that is not possible."""
    from roofwatch.proposals.proposal_check import why_not_called

    by_name = {kernel.name: kernel for kernel in kernels}
    if kernels:
        console().print(f"calling {count_of(len(kernels), 'kernel')} once with guessed inputs")

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


def _spec_of(kernel: FoundKernel) -> str:
    guesses = guess_inputs(kernel.parameters)
    inputs = [f'"{name}": {source}' for name, source in guesses.items()]
    directions = ""
    apply = ""
    if kernel.is_differentiable:
        directions = ', directions=["fwd", "bwd"]'
    if kernel.is_class:
        apply = ".apply"
    return _SPEC.format(
        name=kernel.name,
        inputs=", ".join(inputs),
        matrix_count=matrix_count(guesses.values()) + 1,
        directions=directions,
        parameters=", ".join(kernel.parameters),
        language=kernel.language,
        apply=apply,
    )


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


def to_lines(
    kernels: Sequence[FoundKernel],
    states: Mapping[str, str],
    *,
    only_benchmark: bool = False,
) -> list[str]:
    """What was found and written, and what to do next."""
    lines = [*_proposed_lines(kernels)]
    lines += [f"{state}: {path}" for path, state in states.items()]
    for path, state in states.items():
        # there is nothing to correct in a file that was not written
        if state == "declined":
            continue
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
    if only_benchmark:
        return lines
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
    yield f"proposed: {len(called)} of {count_of(len(kernels), 'kernel')} found"
    yield from (f"found: {name}" for name in called)
    for reason, names in names_by_reason.items():
        yield f"not proposed: {listed(names)}: {reason}"
