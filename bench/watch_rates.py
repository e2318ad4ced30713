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
import importlib
import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from bench.noise_sources import Planted, Values, drawn, read_histories, width_of
from roofwatch.ci.ab.compare import FIRST_LOOK_BLOCKS, compare, looks_after
from roofwatch.ci.ab.decisions import MOST_BLOCKS, Decisions, helps_decide
from roofwatch.ci.changepoint.chance import chances_of_steps
from roofwatch.ci.history.step_findings import is_sure_step
from roofwatch.ci.history.steps import find_time_steps
from roofwatch.ci.watching.suspects import suspicion_of
from roofwatch.model.history import CommitRef, Pair
from roofwatch.model.verdict import THRESHOLDS

_SMALLEST_STEP = 0.05
_WIDTHS = (3.0, 6.0)
_FIRST, _LAST, _AFTER = 40, 120, 6
_LONG = 120
"""Values of a series without a step."""
_RUN_BLOCKS = 3
"""Blocks of a single run, the unit of device time."""
_CODE_SHARE, _TIMED_SHARE = 0.1, 0.1
_SUBJECT = ("case", "implementation")
_NIGHT = datetime(2026, 1, 1, tzinfo=UTC)
_NIGHTS = (1, 2, 3, 5)

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
                if row["effect"] != 0:
                    continue
                base, head = np.log(row["base"]), np.log(row["head"])
                centre = np.median(np.concatenate([base, head]))
                bases.append((base - centre) / row["tags"]["sigma"])
                heads.append((head - centre) / row["tags"]["sigma"])
        return cls(bases, heads)

    def blocks(self, rng: np.random.Generator) -> tuple[Values, Values]:
        """Draw the noise of the blocks of a base and of a head, neighbours of one measured pair."""
        number = int(rng.integers(len(self.bases)))
        positions = (int(rng.integers(len(self.bases[number]))) + np.arange(MOST_BLOCKS)) % len(
            self.bases[number]
        )
        return self.bases[number][positions], self.heads[number][positions]


@dataclass
class Watch:
    """A runner that watches one series by the rules of `roofwatch watch`, and what it spends."""

    series: Planted
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
            if is_code and measured:
                self._measure_pair(measured[-1], commit)
            elif self.has_code_pairs and self.rng.random() > _TIMED_SHARE and measured:
                continue  # carried: built like the commit before
            else:
                self.cost += 1
            measured.append(commit)
            yield from self._confirmed(commit, measured)

    def _changes_code(self, commit: int) -> bool:
        if not self.has_code_pairs:
            return False
        return commit == self.series.step_at or bool(self.rng.random() < _CODE_SHARE)

    def _confirmed(self, commit: int, measured: Sequence[int]) -> Alerts:
        """Measure pairs until nothing is suspect; then tell which commits changed the time."""
        while True:
            decisions = Decisions(self._pairs)
            suspect = self._suspect(decisions, measured)
            if suspect is None:
                break
            self._measure_pair(*suspect)
        for pair in self._pairs:
            key = (_SUBJECT, pair.base, pair.head)
            if decisions.is_changed(*key):
                yield commit + 1, pair.head.first_parent_count

    def _suspect(self, decisions: Decisions, measured: Sequence[int]) -> tuple[int, int] | None:
        """The commits of the next pair, as `list_suspects` chooses them."""
        for change in decisions.open_changes():
            if not change.is_given_up:
                return change.base.first_parent_count, change.head.first_parent_count
        suspicion = suspicion_of(
            [float(self.series.values[index]) for index in measured],
            [_commit(index) for index in measured],
            _SUBJECT,
            decisions,
        )
        if suspicion is None:
            return None
        base, head = measured[-suspicion.value_count - 1], measured[-suspicion.value_count]
        key = (_SUBJECT, _commit(base), _commit(head))
        return None if decisions.is_given_up(*key) else (base, head)

    def _measure_pair(self, base: int, head: int) -> None:
        """Measure blocks up to the interim analysis that decides, as a job does."""
        step_at = self.series.step_at
        is_across = step_at is not None and base < step_at <= head
        log_change = self.series.log_step if is_across else 0.0
        base_noise, head_noise = self.noise.blocks(self.rng)
        base_ns = np.exp(base_noise * self.series.width)
        head_ns = np.exp(head_noise * self.series.width + log_change)
        block_count = FIRST_LOOK_BLOCKS
        while True:
            pair = Pair(
                project="",
                pair_id=str(len(self._pairs)),
                base=_commit(base),
                head=_commit(head),
                case_id=_SUBJECT[0],
                implementation=_SUBJECT[1],
                runner_class="",
                measured_at=_NIGHT,
                base_blocks_ns=tuple((float(value),) for value in base_ns[:block_count]),
                head_blocks_ns=tuple((float(value),) for value in head_ns[:block_count]),
            )
            compared = compare(
                pair.base_blocks_ns, pair.head_blocks_ns, threshold=THRESHOLDS.relative_change
            )
            if not helps_decide(compared):
                break
            block_count = next(looks_after(block_count))
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
            if abs(math.log(values[index] / values[index - 1])) > math.log1p(limit):
                yield index + 1, index

    return alerts


def perfherder(values: Values) -> Alerts:
    """Welch's t between the 12 values before and after, above 7, as Perfherder does."""
    for seen in range(24, len(values) + 1):
        for index in range(12, seen - 11):
            before, after = values[index - 12 : index], values[index : index + 12]
            error = math.sqrt(before.var(ddof=1) / 12 + after.var(ddof=1) / 12)
            if error > 0 and abs(after.mean() - before.mean()) / error > 7:
                yield seen, index


def three_in_a_row(values: Values) -> Alerts:
    """Alert if the newest three values are 5 % off the median of the ten before."""
    for seen in range(13, len(values) + 1):
        level = float(np.median(values[seen - 13 : seen - 3]))
        changes = np.log(values[seen - 3 : seen] / level)
        if np.all(changes > math.log1p(0.05)) or np.all(changes < -math.log1p(0.05)):
            yield seen, seen - 3


def history_alone(values: Values) -> Alerts:
    """The steps of single runs that alert without a pair."""
    for seen in range(30, len(values) + 1, 2):
        newest = values[:seen]
        steps = find_time_steps(newest, np.full(seen, math.nan))
        for step, chance in zip(steps, chances_of_steps(newest, steps), strict=True):
            if is_sure_step(step, chance):
                yield seen, step.index


# --- scores


@dataclass
class Score:
    """What a rule did on the series of one source."""

    value_count: int = 0
    step_count: int = 0
    delays: list[int] = field(default_factory=list)
    """Of the alerts that name the right commit, in runs."""
    false_count: int = 0
    cost: float = 0.0

    def add(self, series: Planted, alerts: Alerts) -> None:
        self.value_count += len(series.values)
        self.step_count += series.step_at is not None
        places: set[int] = set()
        for seen, index in alerts:
            if index in places:
                continue
            places.add(index)
            if index == series.step_at:
                self.delays.append(seen - index)
            elif series.step_at is None or abs(index - series.step_at) > 2:
                self.false_count += 1

    def _share_within(self, nights: int) -> float:
        return sum(delay <= nights for delay in self.delays) / max(1, self.step_count)

    def row(self) -> str:
        shares = [f"{self._share_within(nights):.0%}" for nights in _NIGHTS]
        false_rate = 1_000 * self.false_count / self.value_count
        relative_cost = self.cost / self.value_count if self.cost else 1.0
        return " | ".join([*shares, f"{false_rate:.1f}", f"{relative_cost:.2f}"])


def make_series(
    histories: Sequence[Values], synth: ModuleType, count: int, rng: np.random.Generator
) -> list[Planted]:
    """Half of the series have a step of 3 to 6 noise widths, 5 % at least."""
    series: list[Planted] = []
    for number in range(count):
        step_at = int(rng.integers(_FIRST, _LAST)) if number % 2 else None
        length = _LONG if step_at is None else step_at + _AFTER
        if histories:
            history = histories[number // 2 % len(histories)]
            width, noise = width_of(history), drawn(history, length, rng)
        else:
            width = float(rng.choice([0.005, 0.01, 0.02]))
            kind = synth.KINDS[number // 2 % len(synth.KINDS)]
            relative = synth.noise(kind, length, width, rng)
            noise = np.log1p(np.maximum(relative, -0.6))
        size = max(float(rng.uniform(*_WIDTHS)) * width, math.log1p(_SMALLEST_STEP))
        log_step = size * float(rng.choice([-1, 1])) if step_at is not None else 0.0
        if step_at is not None:
            noise[step_at:] += log_step
        values: NDArray[np.float64] = 1_000 * np.exp(noise)
        series.append(Planted(values, step_at, log_step=log_step, width=width))
    return series


def main() -> None:
    """Print a row for each rule and source."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--series", type=int, default=80, help="of each source")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    data = arguments.folder / "data"
    if not (arguments.folder / "synth.py").is_file():
        raise SystemExit(f"{arguments.folder}: no synth.py; see the head of this file")
    sys.path.insert(0, str(arguments.folder))
    synth = importlib.import_module("synth")
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
    for source, histories in {**read_histories(arguments.folder), "synthetic": []}.items():
        # the series do not depend on what the rules draw
        series_rng, rng = np.random.default_rng(arguments.seed).spawn(2)
        series = make_series(histories, synth, arguments.series, series_rng)
        noise = pair_noise["synthetic" if source == "synthetic" else "gpu"]
        for name, has_code_pairs in (("watch", True), ("suspicion alone", False)):
            score = Score()
            for planted in series:
                watch = Watch(planted, noise, rng, has_code_pairs)
                score.add(planted, watch.alerts())
                score.cost += watch.cost
            print(f"| {source} | {name} | {score.row()} |", flush=True)
        for name, rule in rules.items():
            score = Score()
            for planted in series:
                score.add(planted, rule(planted.values))
            print(f"| {source} | {name} | {score.row()} |", flush=True)


if __name__ == "__main__":
    main()
