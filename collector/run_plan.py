"""What to measure, and how long."""

from __future__ import annotations

from dataclasses import dataclass

from roofwatch import __version__
from roofwatch.collector.compile.targets import DEFAULT_TARGETS
from roofwatch.collector.device.clock_lock import Clock
from roofwatch.collector.device.readings import UnfitDevice
from roofwatch.collector.record.measurement import CacheState, Timer
from roofwatch.collector.timing.sampling import EFFORTS, Preset, SamplingPlan

HARNESS_VERSION = __version__
"""Version of what measures: times of different versions do not compare."""

_LAUNCHES_BESIDE_SAMPLING = 14
"""Of a kernel so slow that no time is left for more: one that compiles it, two that its memory is counted by, three to
warm up, six samples, one that began just before the budget was spent, and one that a timer repeats.
"""


@dataclass(frozen=True)
class RunPlan:
    """What to measure, and how long.

    Args:
        kernels: Shell patterns of kernel names.
        implementations: Shell patterns of implementation names.
        tags: Cases that have all of them; None takes what the device does in moments: of a kernel whose cases are
            tagged, those tagged `usual_tag`, and of any other kernel all.
        usual_tag: `quick` on a GPU and `small` on a CPU if None.
        targets: To compile for; empty leaves the static layer out.
        device: `cpu` or `cuda`; None takes a GPU where torch sees one.
        thread_count: Threads of torch on the CPU. One by default: with more, a neighbour that takes one core for a
            moment stalls all of them, and times say more about the neighbour than about the kernel.
        block_count: Blocks of samples per measurement, spread over the run so that no moment decides.
        has_fresh_processes: Whether a block comes from a process that has timed none of its measurement before; of a
            pair every block does.
        sampling: When a block ends.
        timer: The only one to take; None takes the best that there is, one for the whole run.
        cache: What each launch finds; None takes the timer's usual state.
        lock_clocks: What to hold the device's SM clock at meanwhile; None leaves it free.
        unfit_device: Whether to refuse to measure, or to warn, where others use the GPU or it is not kept awake; None
            leaves it to the blocks to tell.
        checks_at_once: Side by side on a CPU; None takes one for each core.
        cases: Shell patterns of case ids, in place of tags.
        has_profiles: Whether some calls of each case are profiled after all is timed.
        check_timeout_s: The longest that one check may take, with compiling, autotuning and the reference.
        compile_timeout_s: The longest that one case and implementation may take to compile for all targets.
        preparation_timeout_s: What a block has before its first launch: inputs, compiling, autotuning.
        launch_timeout_s: The longest that one launch of a healthy kernel may take.
    """

    kernels: tuple[str, ...] = ("*",)
    implementations: tuple[str, ...] = ("*",)
    tags: tuple[str, ...] | None = None
    usual_tag: str | None = None
    targets: tuple[str, ...] = DEFAULT_TARGETS
    device: str | None = None
    thread_count: int | None = 1
    block_count: int = EFFORTS[Preset.SURVEY].block_count
    has_fresh_processes: bool = EFFORTS[Preset.SURVEY].has_fresh_processes
    sampling: SamplingPlan = EFFORTS[Preset.SURVEY].sampling
    timer: Timer | None = None
    cache: CacheState | None = None
    lock_clocks: Clock | None = None
    unfit_device: UnfitDevice | None = None
    checks_at_once: int | None = None
    cases: tuple[str, ...] | None = None
    has_profiles: bool = False
    environment_timeout_s: float = 120.0
    check_timeout_s: float = 300.0
    compile_timeout_s: float = 300.0
    preparation_timeout_s: float = 120.0
    launch_timeout_s: float = 10.0

    @property
    def preset(self) -> Preset | None:
        """The one that samples so, with however many blocks; None where none does."""
        return next((preset for preset, effort in EFFORTS.items() if effort.sampling == self.sampling), None)

    @property
    def block_timeout_s(self) -> float:
        """When a block that is not done hangs: what it has to prepare, to warm up and to sample, and the launches that
        are made however slow they are.
        """
        sampled_s = (self.sampling.warmup_ms + self.sampling.budget_ms) / 1e3
        return self.preparation_timeout_s + sampled_s + _LAUNCHES_BESIDE_SAMPLING * self.launch_timeout_s

    @property
    def block_timeout_in_words(self) -> str:
        """What the time-out is made of, and who may change it."""
        warmup_s, budget_s = self.sampling.warmup_ms / 1e3, self.sampling.budget_ms / 1e3
        return (
            f"a block has {self.preparation_timeout_s:g} s to prepare, {warmup_s:g} s to warm up, {budget_s:g} s of "
            f"samples and {_LAUNCHES_BESIDE_SAMPLING} launches of {self.launch_timeout_s:g} s each; a kernel that is "
            "slower and does not hang takes a larger --launch-timeout, and one that is tuned for longer a larger "
            "--preparation-timeout"
        )
