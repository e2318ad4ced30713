"""Profiles in their folders: the earlier one of a program, and what changed since."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from pydantic import BaseModel, ValidationError

from roofwatch.collector.profiling.attribution import AttributedTime
from roofwatch.measurement.load import busy_sentence
from roofwatch.model.errors import ProfileError
from roofwatch.model.files import atomic_write
from roofwatch.model.metrics import format_ns
from roofwatch.profiles.report import ProfileReport

_FILE = "profile.json"
_WORTH_NAMING = 0.02
"""Share of a step from which a module is named."""


class StoredProfile(BaseModel, frozen=True):
    """What a later profile is compared with."""

    command: tuple[str, ...]
    trace: str
    """File of the trace of the steps, in the same folder."""
    step_ns: tuple[int, ...]
    """Length of each step that was recognised."""
    step_cpu_ns: float | None = None
    """Mean processor time of a step; None in profiles of earlier versions."""
    culprit: str | None
    """The function to look at first, such as `Rotary.forward`."""
    place: str | None
    """File and line of that function."""
    module_shares: dict[str, float]
    """Own time of each module / time of a step."""
    line_shares: dict[str, float]
    load: float
    """Load per processor of the machine when the profile ended."""


@dataclass(frozen=True)
class ProfilePair:
    base: StoredProfile
    head: StoredProfile

    @property
    def stands_out(self) -> bool:
        """Whether the head has a function to look at that was not the one to look at before."""
        return self.head.culprit not in {None, self.base.culprit}

    def summary(self) -> str:
        """Say how the step changed, and where the time is now."""
        sentences = []
        if self.base.step_ns and self.head.step_ns:
            sentences.append(_step_change(self.base.step_ns, self.head.step_ns))
            if self.base.step_cpu_ns and self.head.step_cpu_ns:
                sentences.append(_cpu_change(self.base.step_cpu_ns, self.head.step_cpu_ns))
        else:
            sentences.append("Not both profiles have steps, so the change of a step is unknown.")
        sentences.append(
            "Own time of the modules, base -> head: "
            f"{_share_changes(self.base.module_shares, self.head.module_shares)}."
        )
        if self.stands_out:
            sentences.append(
                f"Now the function {self.head.culprit} ({self.head.place}) takes the most time."
            )
        elif self.head.culprit is not None:
            sentences.append(
                f"{self.head.culprit} ({self.head.place}) still takes the most time of all "
                f"functions; no other one stands out."
            )
        else:
            sentences.append("No function of the program stands out.")
        warning = busy_sentence(max(self.base.load, self.head.load))
        if warning:
            sentences.append(warning)
        return " ".join(sentences)

    def to_json(self) -> dict[str, Any]:
        return {
            "summary": self.summary(),
            "stands_out": self.stands_out,
            "base": self.base.model_dump(),
            "head": self.head.model_dump(),
        }


def store_profile(report: ProfileReport, command: Sequence[str], *, load: float) -> None:
    """Write what a later profile is compared with into the folder of the profile.

    Args:
        report: The profile.
        command: Of the program, redacted.
        load: Load per processor of the machine.
    """
    if not report.traces or not report.step:
        return
    main_trace = report.traces[0]
    step = report.step[0]
    stored = StoredProfile(
        command=tuple(command),
        trace=main_trace.trace,
        step_ns=main_trace.steady.step_ns if main_trace.steady is not None else (),
        step_cpu_ns=main_trace.step_cpu_ns,
        culprit=report.culprit.name if report.culprit is not None else None,
        place=report.culprit.detail if report.culprit is not None else None,
        module_shares=_own_shares(step.modules, step.total_ns),
        line_shares=_own_shares(step.lines, step.total_ns),
        load=load,
    )
    atomic_write(Path(report.folder) / _FILE, stored.model_dump_json().encode())


def find_earlier(folder: Path, command: Sequence[str]) -> Path | None:
    """The newest profile of the same command beside the folder of a new one."""
    files = [file for file in folder.parent.glob(f"*/{_FILE}") if file.parent != folder]
    files.sort(key=lambda file: file.stat().st_mtime_ns, reverse=True)
    for file in files:
        try:
            stored = _read(file)
        # written by another version
        except ProfileError:
            continue
        if stored.command == tuple(command):
            return file.parent
    return None


def compare_profiles(base: Path, head: Path) -> ProfilePair:
    """Compare the profiles of two folders.

    Raises:
        ProfileError: a folder has no profile of steps.
    """
    return ProfilePair(base=_read(base / _FILE), head=_read(head / _FILE))


def trace_of(folder: Path) -> Path:
    """The trace of the steps in the folder of a profile.

    Raises:
        ProfileError: the folder has no profile of steps.
    """
    return folder / _read(folder / _FILE).trace


def _read(file: Path) -> StoredProfile:
    try:
        return StoredProfile.model_validate_json(file.read_bytes())
    except (OSError, ValidationError) as error:
        raise ProfileError(
            f"{file.parent}: no profile of steps in this folder; make one with roofwatch profile "
            f"({type(error).__name__})"
        ) from error


def _own_shares(times: Sequence[AttributedTime], total_ns: int) -> dict[str, float]:
    shares: dict[str, float] = {}
    for time in times:
        name = f"{time.name} {time.detail}"
        shares[name] = shares.get(name, 0.0) + time.innermost_ns / total_ns
    return shares


def _step_change(base_ns: Sequence[int], head_ns: Sequence[int]) -> str:
    change = median(head_ns) / median(base_ns) - 1
    sentence = (
        f"The median step took {format_ns(median(base_ns))} ({format_ns(min(base_ns))} to "
        f"{format_ns(max(base_ns))}) before and {format_ns(median(head_ns))} "
        f"({format_ns(min(head_ns))} to {format_ns(max(head_ns))}) now: {change:+.0%}."
    )
    if min(base_ns) <= max(head_ns) and min(head_ns) <= max(base_ns):
        sentence += " The ranges overlap, so this size is uncertain."
    return sentence


def _cpu_change(base_ns: float, head_ns: float) -> str:
    return (
        f"Processor time of a step, which other programs change less: {format_ns(base_ns)} -> "
        f"{format_ns(head_ns)}, {head_ns / base_ns - 1:+.0%}."
    )


def _share_changes(base: dict[str, float], head: dict[str, float]) -> str:
    """The largest change first; a module that takes little on both sides is left out."""
    largest = {name: max(base.get(name, 0), head.get(name, 0)) for name in {*base, *head}}
    names = [name for name in largest if largest[name] >= _WORTH_NAMING]
    names.sort(key=lambda name: (-abs(head.get(name, 0) - base.get(name, 0)), name))
    changes = [f"{name} {base.get(name, 0):.0%} -> {head.get(name, 0):.0%}" for name in names[:5]]
    return ", ".join(changes)
