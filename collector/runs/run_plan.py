"""What a run measures, for how long, and where its time went."""

import fnmatch
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum

from roofwatch import __version__
from roofwatch.collector.compile.targets import DEFAULT_TARGETS
from roofwatch.collector.device.device_state import UnfitDevice
from roofwatch.model.measurement import CacheState, Timer
from roofwatch.model.timing_method import EFFORTS, Preset, SamplingPlan

ALL = ("*",)
"""The shell pattern of every name."""


@dataclass(frozen=True)
class Progress:
    done: int
    total: int
    """Steps known so far; grows after the suite is loaded."""
    text: str
    is_to_stay: bool = False
    """A notice about the whole run, not the current step."""
    is_result: bool = False
    """A result that was measured just now; a person at a terminal sees it at once."""


OnProgress = Callable[[Progress], None]


class Steps:
    def __init__(self, on_progress: OnProgress) -> None:
        self._on_progress = on_progress
        self._notices: set[str] = set()
        self._done = 0
        self._running = ""
        self.total = 0

    def say(self, text: str) -> None:
        """Report what runs from now on."""
        self._running = text
        self._on_progress(
            Progress(
                done=self._done,
                total=self.total,
                text=text,
            )
        )

    def note(self, text: str) -> None:
        """Report a notice once, even if both suites report it."""
        if text not in self._notices:
            self._notices.add(text)
            self._on_progress(
                Progress(
                    done=self._done,
                    total=self.total,
                    text=text,
                    is_to_stay=True,
                )
            )

    def show(self, result: str) -> None:
        """Report a result of the step that is about to end."""
        self._on_progress(
            Progress(
                done=self._done,
                total=self.total,
                text=result,
                is_result=True,
            )
        )

    def step(self) -> None:
        """Report that a step is done; what runs meanwhile stays named."""
        self._done += 1
        self.say(self._running)


class Activity(StrEnum):
    START = "start"
    """Start the first worker: load torch, Triton and the suite."""
    CEILINGS = "ceilings"
    COMPILE = "compile"
    CHECK = "check"
    PROVENANCE = "provenance"
    """Find and hash the loaded files of the project."""
    COOL_DOWN = "cool_down"
    """Wait for a throttled device."""
    WARM_UP = "warm_up"
    TIMING = "timing"
    """Timed launches, including the work around each launch."""
    OVERHEAD = "overhead"
    """Everything else in a block: starting the process, making inputs, returning results."""
    PROFILE = "profile"


class SpentTime:
    """Wall time per activity in ns, by a monotonic clock; for one thread."""

    def __init__(self) -> None:
        self._total_ns: Counter[str] = Counter()

    @contextmanager
    def on(self, activity: Activity) -> Iterator[None]:
        """Count the time within the block as the activity's."""
        began_ns = time.monotonic_ns()
        try:
            yield
        finally:
            self._total_ns[activity] += time.monotonic_ns() - began_ns

    def move(self, activity: Activity, spent_ns: int, *, source: Activity) -> int:
        """Move a part of one activity's time to another; return how much."""
        part_ns = min(spent_ns, self._total_ns[source])
        self._total_ns[source] -= part_ns
        self._total_ns[activity] += part_ns
        return part_ns

    def add_earlier(self, total_ns: Mapping[str, int]) -> None:
        """Add the time of earlier processes of the same run."""
        self._total_ns.update(total_ns)

    @property
    def total_ns(self) -> dict[str, int]:
        """Total by activity, without the running one."""
        return {
            str(activity): self._total_ns[activity]
            for activity in Activity
            if self._total_ns[activity]
        }


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Whether a name matches one of the shell patterns."""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


HARNESS_VERSION = __version__
"""Version of the measuring code; times of different versions are not comparable."""


@dataclass(frozen=True)
class RunPlan:
    """What to measure, and for how long; the options of `roofwatch run` say more."""

    kernels: tuple[str, ...] = ALL
    implementations: tuple[str, ...] | None = None
    tags: tuple[str, ...] | None = None
    """Cases with all of these tags; None takes the usual ones of kernels that have tagged cases,
    and all of the others.
    """
    usual_tag: str | None = None
    """None means `quick` on a GPU and `small` on a CPU."""
    cases: tuple[str, ...] | None = None
    """Shell patterns of case IDs, instead of tags."""
    targets: tuple[str, ...] = DEFAULT_TARGETS
    device: str | None = None
    thread_count: int | None = 1
    """Torch threads on a CPU. One by default: with more, any other process on a core delays all of
    them.
    """
    block_count: int = EFFORTS[Preset.SURVEY].block_count
    has_fresh_processes: bool = EFFORTS[Preset.SURVEY].has_fresh_processes
    """A new process for every block; two commits always have them."""
    sampling: SamplingPlan = EFFORTS[Preset.SURVEY].sampling
    timer: Timer | None = None
    cache: CacheState | None = None
    lock_clocks: int | None = None
    """SM clock in MHz."""
    device_check: UnfitDevice | None = None
    has_profiles: bool = False
    pins_autotuner: bool = False
    """Of a pair: autotuned functions of both sides use what the base's autotuner chooses."""
    timeout_s: float = 300.0
    """For one check, for compiling one case, and for one block beyond its warm-up and samples."""

    @property
    def preset(self) -> Preset | None:
        """The preset with this sampling; None if there is none."""
        return next(
            (preset for preset, effort in EFFORTS.items() if effort.sampling == self.sampling), None
        )

    @property
    def block_timeout_s(self) -> float:
        """Of a block. A slow kernel exceeds the budget,
        for it is launched at least a dozen times.
        """
        return self.timeout_s + (self.sampling.warmup_ms + self.sampling.budget_ms) / 1e3
