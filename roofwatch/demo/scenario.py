"""The demo's history: sixteen scripted commits; four change a kernel, and each must be found."""

import shutil
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from rich.table import Table
from rich.text import Text

from roofwatch.collector.git import run_git
from roofwatch.console.terminal import make_table
from roofwatch.model.history import Regression, RegressionState
from roofwatch.model.verdict import Verdict
from roofwatch.tables.cells import verdict

BENCHMARK_FILE = "bench_layers.py"
_SOURCE = Path(__file__).parent / "repository" / BENCHMARK_FILE

# Keep the user's settings, hooks and signing out of the demo's repository.
_GIT_ENVIRONMENT = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "Scripted Author",
    "GIT_AUTHOR_EMAIL": "author@example.invalid",
    "GIT_COMMITTER_NAME": "Scripted Author",
    "GIT_COMMITTER_EMAIL": "author@example.invalid",
}


@dataclass(frozen=True)
class Planted:
    """A real change of a kernel, which roofwatch must find."""

    kernel: str
    verdict: Verdict
    description: str


@dataclass(frozen=True)
class Step:
    subject: str
    file: str = BENCHMARK_FILE
    old: str = ""
    """Text to replace, which occurs once; empty to append to the file."""
    new: str = ""
    planted: Planted | None = None


@dataclass(frozen=True)
class MadeCommit:
    sha: str
    step: Step


STEPS = (
    Step("Add the layers of the model"),
    Step(
        "Describe this repository",
        file="README.md",
        new="# Layers\n\nThe kernels of a small language model.\n",
    ),
    Step(
        "Explain the epsilon",
        old="EPSILON = 1e-6\n",
        new="# keeps a row of zeros from dividing by zero\nEPSILON = 1e-6\n",
    ),
    Step("Ignore caches", file=".gitignore", new="__pycache__/\n"),
    Step(
        "Rename a variable in the rms_norm kernel",
        old="""    inverse_rms = 1.0 / tl.sqrt(tl.sum(x * x, axis=0) / n_cols + epsilon)
    weight = tl.load(weight_ptr + cols, mask=mask)  # [BLOCK]
    tl.store(inverse_rms_ptr + row, inverse_rms)
    tl.store(y_ptr + row * n_cols + cols, x * inverse_rms * weight, mask=mask)
""",
        new="""    scale = 1.0 / tl.sqrt(tl.sum(x * x, axis=0) / n_cols + epsilon)
    gain = tl.load(weight_ptr + cols, mask=mask)  # [BLOCK]
    tl.store(inverse_rms_ptr + row, scale)
    tl.store(y_ptr + row * n_cols + cols, x * scale * gain, mask=mask)
""",
    ),
    Step(
        subject="Write layer_norm out, to log its statistics later",
        old="""def layer_norm_eager(x, weight, bias):
    return torch.nn.functional.layer_norm(x, (x.shape[-1],), weight, bias, EPSILON)
""",
        new="""def layer_norm_eager(x, weight, bias):
    centred = x - x.mean(dim=-1, keepdim=True)
    variance = centred.square().mean(dim=-1, keepdim=True)
    return centred * torch.rsqrt(variance + EPSILON) * weight + bias
""",
        planted=Planted(
            "layer_norm", Verdict.REGRESSED, "seven passes over memory in place of one fused pass"
        ),
    ),
    Step(
        "Note where gated_mlp comes from",
        old="# ---- gated_mlp: gelu(gate) * up\n",
        new="# ---- gated_mlp (Shazeer, 2020): gelu(gate) * up\n",
    ),
    Step("Describe how to measure", file="README.md", new="\n    roofwatch run bench_layers.py\n"),
    Step(
        "Annotate a launcher",
        old="def projection_eager(x, w):",
        new="def projection_eager(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:",
    ),
    Step(
        subject="Use the fused GELU in gated_mlp",
        old="    return 0.5 * gate * (1.0 + torch.erf(gate / 2**0.5)) * up\n",
        new="    return torch.nn.functional.gelu(gate) * up\n",
        planted=Planted("gated_mlp", Verdict.IMPROVED, "one fused GELU in place of five passes"),
    ),
    Step(
        "List the kernels",
        file="README.md",
        new="\nrms_norm, layer_norm, gated_mlp, projection\n",
    ),
    Step(
        "Put the projection's grid on two lines",
        old="    grid = (triton.cdiv(x.shape[0], BLOCK_M), triton.cdiv(w.shape[1], BLOCK_N))\n",
        new="    rows, columns = triton.cdiv(x.shape[0], BLOCK_M), triton.cdiv(w.shape[1], "
        "BLOCK_N)\n"
        "    grid = (rows, columns)\n",
    ),
    Step(
        subject="Simplify the gradient of rms_norm",
        old="(weighted - normalised * mean) * inverse_rms, mask=mask",
        new="(weighted - mean) * inverse_rms, mask=mask",
        planted=Planted("rms_norm", Verdict.REGRESSED, "the gradient loses its projection term"),
    ),
    Step(
        "Note where the formula comes from",
        old="# ---- rms_norm: y = x / sqrt(mean(x^2) + epsilon) * weight\n",
        new="# ---- rms_norm (Zhang, Sennrich, 2019): y = x / sqrt(mean(x^2) + epsilon) * weight\n",
    ),
    Step(
        "Name the output tile",
        old="    y = accumulator.to(y_ptr.dtype.element_ty)  # [BLOCK_M, BLOCK_N]\n",
        new="    y = accumulator.to(y_ptr.dtype.element_ty)  # the output tile, [BLOCK_M, "
        "BLOCK_N]\n",
    ),
    Step(
        subject="Give each warp of the projection a larger tile",
        old="BLOCK_M, BLOCK_N, BLOCK_K, NUM_WARPS = 128, 128, 32, 8",
        new="BLOCK_M, BLOCK_N, BLOCK_K, NUM_WARPS = 128, 256, 32, 4",
        planted=Planted(
            "projection",
            Verdict.REGRESSED,
            "a 128x256 tile at 4 warps spills registers on some targets",
        ),
    ),
)


def make_repository(folder: Path) -> tuple[MadeCommit, ...]:
    """Make the repository with its history; the newest commit is checked out on `main`."""
    begin_repository(folder)
    return tuple(commit_step(folder, number) for number in range(len(STEPS)))


def begin_repository(folder: Path) -> None:
    """Make the repository, without commits."""
    folder.mkdir(parents=True)
    _git(folder, "init", "--quiet", "--initial-branch=main")


def commit_step(folder: Path, number: int) -> MadeCommit:
    """Commit the numbered step; the steps before it were committed."""
    step = STEPS[number]
    # one commit a day, the newest today: what was measured just now is not months old
    today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    committed_at = today - timedelta(days=len(STEPS) - 1 - number)
    _apply(folder, step, is_first=number == 0)
    _git(folder, "add", "--all")
    _git(
        folder,
        "commit",
        "--quiet",
        "--no-verify",
        "--no-gpg-sign",
        "-m",
        step.subject,
        when=committed_at.isoformat(),
    )
    return MadeCommit(_git(folder, "rev-parse", "HEAD").strip(), step)


def _apply(folder: Path, step: Step, *, is_first: bool) -> None:
    file = folder / step.file
    if is_first:
        shutil.copyfile(_SOURCE, file)
    if not step.old:
        with file.open("a") as end:
            end.write(step.new)
        return
    file.write_text(file.read_text().replace(step.old, step.new))


def _git(folder: Path, *arguments: str, when: str | None = None) -> str:
    if when is None:
        dates = {}
    else:
        dates = {"GIT_AUTHOR_DATE": when, "GIT_COMMITTER_DATE": when}
    return run_git(folder, *arguments, extra_environment={**_GIT_ENVIRONMENT, **dates})


@dataclass(frozen=True)
class CommitOutcome:
    commit: MadeCommit
    regressions: tuple[Regression, ...]
    """Open regressions and improvements of the commit."""

    def _is_planted(self, regression: Regression) -> bool:
        planted = self.commit.step.planted
        return planted is not None and (regression.kernel, regression.verdict) == (
            planted.kernel,
            planted.verdict,
        )

    @property
    def is_found(self) -> bool:
        return any(self._is_planted(regression) for regression in self._confirmed)

    @property
    def false_alarms(self) -> tuple[Regression, ...]:
        """Confirmed changes that were not planted; unconfirmed ones do not count."""
        return tuple(
            regression for regression in self._confirmed if not self._is_planted(regression)
        )

    @property
    def _confirmed(self) -> list[Regression]:
        return [regression for regression in self.regressions if regression.is_confirmed]

    @property
    def is_correct(self) -> bool:
        return not self.false_alarms and (self.commit.step.planted is None or self.is_found)


def outcomes(
    commits: Sequence[MadeCommit], regressions: Iterable[Regression]
) -> list[CommitOutcome]:
    """Assign regressions to the commits, in commit order."""
    by_sha: defaultdict[str, list[Regression]] = defaultdict(list)
    for regression in regressions:
        if regression.state is RegressionState.OPEN:
            by_sha[regression.commit.sha].append(regression)
    return [CommitOutcome(commit, tuple(by_sha[commit.sha])) for commit in commits]


def outcomes_table(judged: Iterable[CommitOutcome]) -> Table:
    """One row per commit: what was planted, what was found."""
    rows = []
    for outcome in judged:
        step = outcome.commit.step
        planted = outcome.commit.step.planted
        words = None
        if planted is not None:
            words = f"{planted.kernel} {planted.verdict}: {planted.description}"
        rows.append(
            (outcome.commit.sha[:8], step.subject, words, _found_text(outcome), _result(outcome))
        )
    return make_table(
        ("commit", "subject", "planted", "found", "result"), rows, title="sixteen commits"
    )


def _found_text(outcome: CommitOutcome) -> Text:
    if not outcome.regressions:
        return Text("nothing", style="dim")
    lines = [
        Text.assemble(
            verdict(regression.verdict),
            "" if regression.is_confirmed else " (suspected, not confirmed)",
            f", {regression.cause}: {regression.summary}",
        )
        for regression in outcome.regressions
    ]
    return Text("\n").join(lines)


def _result(outcome: CommitOutcome) -> Text:
    if outcome.false_alarms:
        return Text("false alarm", style="bold red")
    if outcome.commit.step.planted is None:
        return Text("quiet", style="dim")
    if outcome.is_found:
        return Text("found", style="bold green")
    return Text("missed", style="bold red")
