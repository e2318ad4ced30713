"""How soon rules alert to a step with the right commit, how often falsely, and what it costs.

    PYTHONPATH=. python bench/watch_rates.py FOLDER [--series N] [--seed N]

FOLDER contains `data/real/gpu_raw.jsonl`, `data/paired.jsonl`, `data/real/paired_gpu.jsonl` and
`synth.py`. Steps of 3 to 6 noise widths, 5 % at least, are planted in noise drawn from each source.
A pair is simulated by the residuals of a measured pair without an effect, scaled to the noise of
the series, which is pessimistic: a pair lacks what differs from day to day. Which pair is measured,
for how many blocks, and what it says is decided by the code of `roofwatch watch`. No constant was
chosen on these data, so no source is left out.

`watch` as it runs: one commit in ten changes the code of the kernel, and is measured as a pair; of
the others one in ten is timed. `suspicion alone` times every commit and measures no commit as a
pair without a suspicion, as for a change that comes from outside the code.
"""

import argparse
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from types import ModuleType

import numpy as np

from bench.alert_rates import alerting_steps
from bench.noise_sources import (
    PlantedSeries,
    StepPlaces,
    Values,
    draw_series,
    import_synth,
    read_histories,
)
from roofwatch.ci.ab.compare import FIRST_LOOK_BLOCKS, compare, looks_after
from roofwatch.ci.ab.decisions import MOST_BLOCKS, Decisions, PairedCase, helps_decide
from roofwatch.ci.watching.suspects import suspicion_of
from roofwatch.model.history import CommitRef, Pair
from roofwatch.model.verdict import THRESHOLDS

_SMALLEST_STEP = 0.05
_WIDTHS = (3.0, 6.0)
"""Sizes of steps, in noise widths."""
_PLACES = StepPlaces(
    first=40,
    last=120,
    values_after=6,
    values_without_step=120,
)
_RUN_BLOCKS = 3
"""Blocks of a single run, the unit of device time."""
_CODE_SHARE = 0.1
"""Of commits change the code of the kernel."""
_TIMED_SHARE = 0.1
"""Of the others are timed; the rest is built like the commit before."""
_SUBJECT = ("case", "implementation")
_NIGHT = datetime(2026, 1, 1, tzinfo=UTC)
_NIGHTS = (1, 2, 3, 5)
"""Delays that the table has a column for."""

Alerts = Iterator[tuple[int, int]]
"""Values seen, and the position of the commit that is named."""


@dataclass(frozen=True)
class PairNoise:
    """Residuals of the log times of measured pairs without an effect, in their noise widths."""

    bases: Sequence[Values]
    heads: Sequence[Values]

    @classmethod
    def read(cls, *files: Path) -> "PairNoise":
        bases: list[Values] = []
        heads: list[Values] = []
        for file in files:
            for line in file.read_text().splitlines():
                row = json.loads(line)
                # A pair with an effect has no residuals of noise alone.
                if row["effect"] != 0:
                    continue
                # logarithms, so that noise is relative to the time
                base = np.log(row["base"])
                head = np.log(row["head"])
                centre = np.median(np.concatenate([base, head]))
                width = row["tags"]["sigma"]
                bases.append((base - centre) / width)
                heads.append((head - centre) / width)
        return cls(bases, heads)

    def blocks(self, rng: np.random.Generator) -> tuple[Values, Values]:
        """Draw the noise of the blocks of a base and of a head, neighbours of one measured pair."""
        number = int(rng.integers(len(self.bases)))
        base = self.bases[number]
        head = self.heads[number]
        # A run of blocks from a random start, around the end if the pair is short.
        start = int(rng.integers(len(base)))
        positions = (start + np.arange(MOST_BLOCKS)) % len(base)
        return base[positions], head[positions]


@dataclass
class SimulatedWatch:
    """A runner that watches one series by the rules of `roofwatch watch`, and what it spends."""

    series: PlantedSeries
    noise: PairNoise
    rng: np.random.Generator
    has_code_pairs: bool
    cost: float = 0.0
    """Device time, in single runs."""
    _pairs: list[Pair] = field(default_factory=list)

    def alerts(self) -> Alerts:
        """Measure commit after commit."""
        measured: list[int] = []
        for commit in range(len(self.series.values)):
            is_code = self._changes_code(commit)
            needs_pair = is_code and bool(measured)
            if needs_pair:
                self._measure_pair(measured[-1], commit)
            # built like the commit before, whose time it has
            elif self._skips_run() and measured:
                continue
            else:
                self.cost += 1
            measured.append(commit)
            yield from self._confirmed(commit, measured)

    def _skips_run(self) -> bool:
        """Draw whether a commit without a pair is not timed."""
        return self.has_code_pairs and bool(self.rng.random() > _TIMED_SHARE)

    def _changes_code(self, commit: int) -> bool:
        if not self.has_code_pairs:
            return False
        # a change of the time is one of the code here
        if commit == self.series.step_at:
            return True
        return bool(self.rng.random() < _CODE_SHARE)

    def _confirmed(self, commit: int, measured: Sequence[int]) -> Alerts:
        """Measure pairs until nothing is suspect; then tell which commits changed the time."""
        while True:
            # pairs may decide several suspicions at once
            decisions = Decisions(self._pairs)
            suspect = self._suspect(decisions, measured)
            if suspect is None:
                break
            base, head = suspect
            self._measure_pair(base, head)
        for pair in self._pairs:
            paired = PairedCase(subject=_SUBJECT, base=pair.base, head=pair.head)
            if decisions.is_changed(paired):
                yield commit + 1, pair.head.first_parent_count

    def _suspect(self, decisions: Decisions, measured: Sequence[int]) -> tuple[int, int] | None:
        """The commits of the next pair, as `list_suspects` chooses them."""
        for change in decisions.open_changes():
            if not change.is_given_up:
                return change.base.first_parent_count, change.head.first_parent_count
        values = [float(self.series.values[index]) for index in measured]
        commits = [_commit(index) for index in measured]
        suspicion = suspicion_of(
            values=values,
            commits=commits,
            subject=_SUBJECT,
            decisions=decisions,
        )
        if suspicion is None:
            return None
        # The suspicion counts from the newest value.
        base = measured[-suspicion.value_count - 1]
        head = measured[-suspicion.value_count]
        paired = PairedCase(subject=_SUBJECT, base=_commit(base), head=_commit(head))
        if decisions.is_given_up(paired):
            return None
        return base, head

    def _measure_pair(self, base: int, head: int) -> None:
        """Measure blocks up to the interim analysis that decides, as a job does."""
        step_at = self.series.step_at
        log_change = 0.0
        # only a range that contains the step changes
        if step_at is not None and base < step_at <= head:
            log_change = self.series.log_step
        base_noise, head_noise = self.noise.blocks(self.rng)
        # the noise of the pair, scaled to that of the series
        base_ns = np.exp(base_noise * self.series.width)
        head_ns = np.exp(head_noise * self.series.width + log_change)
        block_count = FIRST_LOOK_BLOCKS
        while True:
            base_blocks_ns = tuple((float(value),) for value in base_ns[:block_count])
            head_blocks_ns = tuple((float(value),) for value in head_ns[:block_count])
            compared = compare(
                base_blocks_ns,
                head_blocks_ns,
                threshold=THRESHOLDS.relative_change,
            )
            # as a job does, at each interim analysis
            if not helps_decide(compared):
                break
            block_count = next(looks_after(block_count))
        pair = Pair(
            project="",
            pair_id=str(len(self._pairs)),
            base=_commit(base),
            head=_commit(head),
            case_id=_SUBJECT[0],
            implementation=_SUBJECT[1],
            runner_class="",
            measured_at=_NIGHT,
            base_blocks_ns=base_blocks_ns,
            head_blocks_ns=head_blocks_ns,
        )
        self._pairs.append(pair)
        self.cost += 2 * block_count / _RUN_BLOCKS


@cache
def _commit(number: int) -> CommitRef:
    return CommitRef(
        first_parent_count=number,
        sha=f"{number:040x}",
        author="",
        subject="",
        committed_at=_NIGHT,
    )


# --- other rules


def fixed_threshold(limit: float) -> Callable[[Values], Alerts]:
    """Alert to each value that differs from the one before by a fraction."""

    def alerts(values: Values) -> Alerts:
        for index in range(1, len(values)):
            ratio = values[index] / values[index - 1]
            # the same for a value that is slower and one that is faster by the limit
            if abs(math.log(ratio)) > math.log1p(limit):
                yield index + 1, index

    return alerts


def perfherder(values: Values) -> Alerts:
    """Welch's t between the 12 values before and after, above 7, as Perfherder does."""
    window = 12
    for seen in range(2 * window, len(values) + 1):
        for index in range(window, seen - window + 1):
            before = values[index - window : index]
            after = values[index : index + window]
            # of the difference of two means of equally many values
            variance = before.var(ddof=1) + after.var(ddof=1)
            error = math.sqrt(variance / window)
            distance = abs(after.mean() - before.mean())
            # equal values have no error to divide by
            if error > 0 and distance / error > 7:
                yield seen, index


def three_in_a_row(values: Values) -> Alerts:
    """Alert if the newest three values are 5 % off the median of the ten before."""
    limit = math.log1p(0.05)
    for seen in range(13, len(values) + 1):
        newest = values[seen - 3 : seen]
        earlier = values[seen - 13 : seen - 3]
        level = float(np.median(earlier))
        changes = np.log(newest / level)
        # three values on one side, so that one slow run raises no alert
        is_slower = np.all(changes > limit)
        is_faster = np.all(changes < -limit)
        if is_slower or is_faster:
            yield seen, seen - 3


def history_alone(values: Values) -> Alerts:
    """The steps of single runs that alert without a pair."""
    # Every second value is enough to see when an alert comes, and halves the time.
    every_second_value = range(30, len(values) + 1, 2)
    for seen, step in alerting_steps(values, every_second_value):
        yield seen, step.index


# --- scores


@dataclass
class RuleScore:
    """What a rule did on the series of one source."""

    value_count: int = 0
    step_count: int = 0
    delays: list[int] = field(default_factory=list)
    """Of the alerts that name the right commit, in runs."""
    false_count: int = 0
    cost: float = 0.0

    def add(self, series: PlantedSeries, alerts: Alerts) -> None:
        self.value_count += len(series.values)
        self.step_count += series.step_at is not None
        places: set[int] = set()
        for seen, index in alerts:
            if index in places:
                continue
            places.add(index)
            if index == series.step_at:
                self.delays.append(seen - index)
            # An alarm next to the step, at a wrong commit, is neither right nor false.
            elif series.step_at is None or abs(index - series.step_at) > 2:
                self.false_count += 1

    def _share_within(self, nights: int) -> float:
        early_count = sum(delay <= nights for delay in self.delays)
        return early_count / max(1, self.step_count)

    def row(self) -> str:
        cells = [f"{self._share_within(nights):.0%}" for nights in _NIGHTS]
        # a rate per value: sources have series of other lengths
        false_rate = 1_000 * self.false_count / self.value_count
        cells.append(f"{false_rate:.1f}")
        # Rules without pairs time each commit once.
        relative_cost = 1.0
        if self.cost:
            relative_cost = self.cost / self.value_count
        cells.append(f"{relative_cost:.2f}")
        return " | ".join(cells)


def make_series(
    histories: Sequence[Values],
    synth: ModuleType,
    count: int,
    rng: np.random.Generator,
) -> list[PlantedSeries]:
    """Half of the series have a step of 3 to 6 noise widths, 5 % at least."""
    series: list[PlantedSeries] = []
    for noise in draw_series(
        histories=histories,
        synth=synth,
        count=count,
        places=_PLACES,
        rng=rng,
    ):
        # Drawn for each series: the published figures depend on the order of the draws.
        widths = float(rng.uniform(*_WIDTHS))
        drawn_size = widths * noise.width
        size = max(drawn_size, math.log1p(_SMALLEST_STEP))
        logs = noise.logs
        log_step = 0.0
        if noise.step_at is not None:
            # as many improvements as regressions
            sign = float(rng.choice([-1, 1]))
            log_step = size * sign
            logs[noise.step_at :] += log_step
        planted = PlantedSeries(
            values=1_000 * np.exp(logs),
            step_at=noise.step_at,
            log_step=log_step,
            width=noise.width,
        )
        series.append(planted)
    return series


def main() -> None:
    """Print a row for each rule and source."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument(
        "--series",
        type=int,
        default=80,
        help="of each source",
    )
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    data = arguments.folder / "data"
    synth = import_synth(arguments.folder)
    pair_noise = {
        "gpu": PairNoise.read(data / "real" / "paired_gpu.jsonl"),
        "synthetic": PairNoise.read(data / "paired.jsonl"),
    }
    rules: dict[str, Callable[[Values], Alerts]] = {
        "fixed 5 %": fixed_threshold(0.05),
        "fixed 10 %": fixed_threshold(0.1),
        "t-test of Perfherder": perfherder,
        "three runs in a row": three_in_a_row,
        "history without pairs": history_alone,
    }
    columns = " | ".join(f"{most} runs" for most in _NIGHTS)
    print(f"| source | rule | {columns} | false alerts per 1,000 | device time |")
    print(f"|{'---|' * (len(_NIGHTS) + 4)}")
    sources = {**read_histories(arguments.folder), "synthetic": []}
    for source, histories in sources.items():
        # The series do not depend on what the rules draw.
        series_rng, rng = np.random.default_rng(arguments.seed).spawn(2)
        series = make_series(
            histories=histories,
            synth=synth,
            count=arguments.series,
            rng=series_rng,
        )
        # pairs were measured on GPUs; synthetic series have synthetic pairs
        if source == "synthetic":
            noise = pair_noise["synthetic"]
        else:
            noise = pair_noise["gpu"]
        for name, has_code_pairs in (("watch", True), ("suspicion alone", False)):
            score = _score_watch(
                series=series,
                noise=noise,
                rng=rng,
                has_code_pairs=has_code_pairs,
            )
            print(f"| {source} | {name} | {score.row()} |", flush=True)
        for name, rule in rules.items():
            score = RuleScore()
            for planted in series:
                score.add(planted, rule(planted.values))
            print(f"| {source} | {name} | {score.row()} |", flush=True)


def _score_watch(
    series: Sequence[PlantedSeries],
    noise: PairNoise,
    rng: np.random.Generator,
    *,
    has_code_pairs: bool,
) -> RuleScore:
    score = RuleScore()
    for planted in series:
        watch = SimulatedWatch(
            series=planted,
            noise=noise,
            rng=rng,
            has_code_pairs=has_code_pairs,
        )
        score.add(planted, watch.alerts())
        score.cost += watch.cost
    return score


if __name__ == "__main__":
    main()
