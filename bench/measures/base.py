"""What a measure is, and how a pair of figures (ours, the limit's) becomes one result."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from harness import Programs


@dataclasses.dataclass
class Result:
    """One entry of results.json. `ratio` is ours over the limit, or None where there is no pair."""

    name: str
    value: float | None  # None if only the limit was measured
    unit: str
    command: str
    limit: float | None = None
    ratio: float | None = None
    bound: str = ""  # what must hold: "ratio >= 0.85", "value <= 50"
    details: dict = dataclasses.field(default_factory=dict)  # cpu_us_per_op, discard, ...

    @property
    def met(self) -> bool | None:
        """Whether the bound holds; None if it cannot be said."""
        if not self.bound:
            return None
        what, relation, number = self.bound.split()
        have = self.ratio if what == "ratio" else self.value
        if have is None:
            return None
        return have >= float(number) if relation == ">=" else have <= float(number)

    def to_json(self) -> dict:
        entry = {"name": self.name, "value": self.value, "unit": self.unit, "limit": self.limit, "ratio": self.ratio,
                 **self.details, "bound": self.bound, "met": self.met, "command": self.command}
        return {key: round(value, 5) if isinstance(value, float) else value for key, value in entry.items()}


class Measure:
    """One named figure. Subclasses say how to take it; results() raises NotBuilt if what it needs is missing."""

    name: str

    def results(self, programs: Programs, limits_only: bool) -> list[Result]:
        raise NotImplementedError


def median_of(runs: list[dict], field: str) -> float:
    return statistics.median(run[field] for run in runs)


def in_turn(rounds: int, ours: Callable, limit: Callable, script: str) -> tuple[list[dict], list[dict], str]:
    """Runs of both, alternately, and the script that the limit followed: the one given unless ours reports one."""
    script = ours().get("script") or script  # a first run to fill caches; the limit follows its messages
    ours_runs, limit_runs = [], []
    for turn in range(rounds):
        pair = [lambda: ours_runs.append(ours()), lambda: limit_runs.append(limit(script))]
        for run in pair if turn % 2 == 0 else reversed(pair):
            run()
    return ours_runs, limit_runs, script


class PairedMeasure(Measure):
    """Ours and the limit in turn, the same messages, the median of the paired ratios.

    `figure` and `cpu` are fields of the JSON that both load programs print. `script` is the exchange that the limit runs
    if ours did not say what it exchanged.
    """

    unit: str
    figure: str
    cpu: str
    at_least: float
    script: str
    details: tuple[str, ...] = ()  # further fields of ours to report

    @contextmanager
    def ours(self, programs: Programs) -> Iterator:
        """Sets up our side; yields a function that runs it once and returns its JSON."""
        raise NotImplementedError

    @contextmanager
    def limit(self, programs: Programs) -> Iterator:
        """Sets up the limit's side; yields a function of the script."""
        raise NotImplementedError

    def beside(self, programs: Programs, script: str) -> dict:
        """Figures that are reported beside the pair."""
        return {}

    def results(self, programs: Programs, limits_only: bool) -> list[Result]:
        if limits_only:
            with self.limit(programs) as limit:
                runs = [limit(self.script) for _ in range(programs.settings.rounds)]
            return [self.result([], runs, self.beside(programs, self.script))]
        with self.ours(programs) as ours, self.limit(programs) as limit:
            ours_runs, limit_runs, script = in_turn(programs.settings.rounds, ours, limit, self.script)
        return [self.result(ours_runs, limit_runs, self.beside(programs, script))]

    def result(self, ours: list[dict], limits: list[dict], beside: dict) -> Result:
        suffix = self.cpu.removeprefix("client_").removeprefix("server_")
        both = [field for field in self.details if field in limits[0]]
        details = {f"limit_{suffix}": median_of(limits, self.cpu),
                   **{f"limit_{field}": median_of(limits, field) for field in both}, **beside,
                   "limit_command": limits[0]["command"]}
        result = Result(self.name, None, self.unit, limits[0]["command"], limit=median_of(limits, self.figure),
                        bound=f"ratio >= {self.at_least}", details=details)
        if ours:
            result.value = median_of(ours, self.figure)
            result.ratio = statistics.median(a[self.figure] / b[self.figure] for a, b in zip(ours, limits, strict=True))
            result.command = ours[0]["command"]
            others = {field: median_of(ours, field) for field in self.details}
            result.details = {suffix: median_of(ours, self.cpu), **others, **details}
        return result
