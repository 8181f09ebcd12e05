"""Runs the benchmarks: each measure in turn with its limit, paired medians, a table and results.json.

    ./dev bench [--only NAME]... [--rounds N] [--seconds S] [--quick] [--limits]

The exit status is 0 if all was measured and every bound holds, 1 if a bound is missed, 2 if a measure could not be taken.
docs/benchmarks.md explains the figures.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import pathlib
import sys

import measures
from harness import ROOT, Failed, NotBuilt, Programs, Settings
from measures.base import Result

OUTPUT = ROOT / "build" / "bench" / "results.json"
LIMITS_OUTPUT = ROOT / "build" / "bench" / "limits.json"


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev bench", description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="a measure, or a pattern: push_*")
    parser.add_argument("--rounds", type=int, default=5, help="pairs of runs (default 5)")
    parser.add_argument("--seconds", type=float, default=2.0, help="measured time of a run (default 2)")
    parser.add_argument("--quick", action="store_true", help="3 rounds of 1 s: to see that it works, not to compare")
    parser.add_argument("--limits", action="store_true", help="only the limits, into limits.json")
    parser.add_argument("--unix", action="store_true", help="over unix sockets instead of TCP")
    parser.add_argument("--list", action="store_true", help="print the names of the measures")
    parser.add_argument("--programs", type=pathlib.Path, default=ROOT / "build" / "release" / "bin",
                        help="folder of the programs (default build/release/bin)")
    arguments = parser.parse_args()
    if arguments.rounds < 1 or arguments.seconds <= 0:
        parser.error("--rounds is at least 1, --seconds more than 0")
    return arguments


def chosen(patterns: list[str]) -> list:
    if not patterns:
        return measures.ALL
    found = [m for m in measures.ALL if any(fnmatch.fnmatch(m.name, pattern) for pattern in patterns)]
    if not found:
        sys.exit(f"no measure is named {', '.join(patterns)}; --list prints the names")
    return found


def number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def row(result: Result) -> str:
    cpu = {key: value for key, value in result.details.items() if key in ("cpu_us_per_op", "cpu_s_per_gb")}
    cpu_text = next((f"{number(value)} {key.removeprefix('cpu_')}" for key, value in cpu.items()), "-")
    ratio = "-" if result.ratio is None else f"{result.ratio:.3f}"
    verdict = {True: "met", False: "MISSED", None: "-"}[result.met]
    return (f"{result.name:<36}{number(result.value):>12} {result.unit:<12}{number(result.limit):>12}{ratio:>8}"
            f"  {cpu_text:<20}{result.bound:<16}{verdict}")


def main() -> int:
    arguments = parse()
    if arguments.list:
        print("\n".join(measure.name for measure in measures.ALL))
        return 0
    quick = arguments.quick
    settings = Settings(programs=arguments.programs.resolve(), python=sys.executable, unix=arguments.unix,
                        rounds=3 if quick else arguments.rounds, seconds=1.0 if quick else arguments.seconds,
                        warm_up_seconds=0.3 if quick else 0.5, quick=quick)
    programs = Programs(settings)
    results, problems = [], []
    print(f"{'measure':<36}{'value':>12} {'unit':<12}{'limit':>12}{'ratio':>8}  {'cpu':<20}{'bound':<16}")
    for measure in chosen(arguments.only):
        try:
            taken = measure.results(programs, arguments.limits)
        except (NotBuilt, Failed) as error:
            problems.append(measure.name)
            print(f"{measure.name:<36}not measured: {error}", flush=True)
            continue
        for result in taken:
            print(row(result), flush=True)
        results += taken
    output = LIMITS_OUTPUT if arguments.limits else OUTPUT
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps([result.to_json() for result in results], indent=1) + "\n")
    print(f"wrote {output.relative_to(ROOT)}: {len(results)} figures, {len(problems)} not measured")
    if problems:
        return 2
    return 1 if any(result.met is False for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
