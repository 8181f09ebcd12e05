"""The shape of public reference runs, replayed in virtual time through the daemon's own shard and ledger.

    .venv/bin/python bench/replay.py [--seeds N] [--json FILE] [--plot FILE.png]
    .venv/bin/python bench/replay.py --fit STEPS.csv

The reference: 18 runs of MLPerf Training v6.1 `qwen35_397b_grpo` (192 GPUs generate, 64 train, 16 rollouts per prompt, one
step of lag). STEPS.csv has a line for each of their steps: global_batch_size, run, step, train_step_s, policy_training_s,
exposed_generation_s, weight_sync_s, valid_tokens, valid_sequences. `--fit` prints what bench/replay/workload.h holds:
training by least squares, the lengths' deviation from how the steps' means differ, and the engines' two numbers by trying.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

ROOT = pathlib.Path(__file__).parent.parent
PROGRAM = pathlib.Path(os.environ.get("FOREBAY_BIN", ROOT / "build" / "release" / "bin")) / "buffer-bench"
RUN_SECONDS = 300
FIRST_STEP = 2  # the first one of a reference run compiles

# By rollouts of a step: seconds of a step, and the share of them that training waits for rollouts (--fit prints them).
REFERENCE = {256: (421.3, 0.749), 512: (617.5, 0.705), 1024: (975.3, 0.662)}
SCENARIOS = {
    "as the reference": [],
    "equal groups filtered": ["--replay_filter"],
    "lengths double": ["--replay_growth=2"],
    "lengths double, filtered": ["--replay_growth=2", "--replay_filter"],
}
POLICIES = ("plain", "survival")
COLUMNS = {
    "waiting_share": "trainer waits",
    "waiting_bound": "at least",
    "engines_idle": "engines idle",
    "filtered": "filtered",
    "discarded": "discarded",
    "mean_lag": "lag",
    "step_s": "s a step",
}


def replay(*flags: str) -> dict:
    done = subprocess.run([str(PROGRAM), "replay", *flags], capture_output=True, text=True, timeout=RUN_SECONDS)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(done.args)}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def replay_all(flags: list[list[str]]) -> list[dict]:
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        return list(pool.map(lambda some: replay(*some), flags))


def mean_of(runs: list[dict]) -> dict:
    return {key: statistics.fmean(run[key] for run in runs) for key in COLUMNS}


def table(rollouts: list[int], seeds: int) -> list[dict]:
    rows = [(scenario, size, policy) for scenario in SCENARIOS for size in rollouts for policy in POLICIES]
    flags = [
        [*SCENARIOS[scenario], f"--replay_rollouts={size}", f"--policy={policy}", f"--replay_seed={seed}"]
        for scenario, size, policy in rows
        for seed in range(1, seeds + 1)
    ]
    runs = replay_all(flags)
    return [
        {"scenario": scenario, "rollouts": size, "policy": policy, **mean_of(runs[i * seeds : (i + 1) * seeds]),
         "steps": runs[i * seeds]["steps"]}
        for i, (scenario, size, policy) in enumerate(rows)
    ]  # fmt: skip


def show(rows: list[dict]) -> None:
    print(f"{'':26}{'rollouts':>9} {'policy':<9}" + "".join(f"{text:>14}" for text in COLUMNS.values()))
    for row in rows:
        if row["scenario"] == "as the reference" and row["policy"] == POLICIES[0]:
            seconds, share = REFERENCE.get(row["rollouts"], (math.nan, math.nan))
            print(f"{'the reference runs':26}{row['rollouts']:>9} {'':9}{share:>14.3f}{'':70}{seconds:>14.3f}")
        cells = "".join(f"{row[key]:>14.3f}" for key in COLUMNS)
        print(f"{row['scenario']:26}{row['rollouts']:>9} {row['policy']:<9}{cells}")


def plot(rows: list[dict], path: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    size = rows[0]["rollouts"]
    figure, axes = pyplot.subplots(3, len(SCENARIOS), sharex=True, sharey="row", figsize=(4 * len(SCENARIOS), 8))
    for column, scenario in enumerate(SCENARIOS):
        for row in rows:
            if row["scenario"] != scenario or row["rollouts"] != size:
                continue
            steps = row["steps"]
            x = [step["step"] for step in steps]
            waits = [step["waiting_s"] / (step["waiting_s"] + step["training_s"] + step["sync_s"]) for step in steps]
            lost = [step["discarded"] / max(step["came_in"], 1) for step in steps]
            for axis, y in zip(axes[:, column], (waits, [step["engines_idle"] for step in steps], lost)):
                axis.plot(x, y, label=row["policy"])
        axes[0, column].set_title(scenario)
        axes[-1, column].set_xlabel("step")
    for axis, text in zip(axes[:, 0], ("the trainer waits", "engines are idle", "discarded so far")):
        axis.set_ylabel(f"share: {text}")
    axes[0, 0].legend()
    figure.suptitle(f"{size} rollouts a step")
    figure.tight_layout()
    figure.savefig(path, dpi=100)


def fit(path: str) -> None:
    with open(path, newline="") as file:
        steps = [{key: float(value) for key, value in row.items()} for row in csv.DictReader(file)]
    late = [step for step in steps if step["step"] >= FIRST_STEP]
    tokens, training = [step["valid_tokens"] for step in late], [step["policy_training_s"] for step in late]
    slope, intercept = statistics.linear_regression(tokens, training)
    print(f"policy training: {intercept:.1f} s + {slope * 1e6:.1f} s per million tokens")
    rest, seen = {}, {}
    for size in sorted({int(step["global_batch_size"]) for step in steps}):
        of_size = [step for step in late if step["global_batch_size"] == size]
        lengths = [s["valid_tokens"] / s["valid_sequences"] for s in steps if s["global_batch_size"] == size]
        seconds = statistics.fmean(s["train_step_s"] for s in of_size)
        share = sum(s["exposed_generation_s"] for s in of_size) / sum(s["train_step_s"] for s in of_size)
        seen[size] = seconds, share
        rest[size] = statistics.median(
            s["train_step_s"] - s["policy_training_s"] - s["exposed_generation_s"] - s["weight_sync_s"] for s in of_size
        )
        deviation = statistics.pstdev(lengths) / statistics.fmean(lengths) * math.sqrt(size)
        print(f"{size}: {seconds:.1f} s a step, {share:.3f} of it waiting, {rest[size]:.1f} s for other work, "
              f"sync {statistics.median(s['weight_sync_s'] for s in of_size):.1f} s, "
              f"mean length {statistics.fmean(lengths):.0f}, deviation {deviation:.2f} of it")  # fmt: skip
    slope, intercept = statistics.linear_regression(list(rest), list(rest.values()))
    print(f"other work: {intercept:.1f} s + {slope:.4f} s a rollout")
    grid = list(itertools.product((90, 100, 115, 130, 150), (3, 4, 5, 6, 8)))
    flags = [
        [f"--replay_rollouts={size}", "--policy=plain", f"--replay_tokens_per_s={speed}", f"--replay_half_at={half}"]
        for speed, half in grid
        for size in seen
    ]
    runs = replay_all(flags)
    errors = {}
    for i, of in enumerate(grid):
        some = runs[i * len(seen) : (i + 1) * len(seen)]
        errors[of] = sum(math.log(run["step_s"] / seconds) ** 2 for run, (seconds, _) in zip(some, seen.values()))
    for (speed, half), error in sorted(errors.items(), key=lambda item: item[1])[:5]:
        print(f"engines: {speed} tokens/s alone, {half} attempts halve it: squared error {error:.4f} (log, summed)")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rollouts", type=int, nargs="+", default=sorted(REFERENCE), help="of a step")
    parser.add_argument("--seeds", type=int, default=1, help="runs of each, of which the means are shown")
    parser.add_argument("--json", help="file for the rows, with the first seed's steps")
    parser.add_argument("--plot", help="PNG for the first of --rollouts; needs matplotlib")
    parser.add_argument("--fit", metavar="CSV", help="fit the workload to the steps of reference runs instead")
    args = parser.parse_args()
    if args.seeds < 1:
        parser.error(f"--seeds: {args.seeds} is less than 1")
    if args.fit:
        fit(args.fit)
        return 0
    rows = table(args.rollouts, args.seeds)
    show(rows)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(rows, indent=1))
    if args.plot:
        plot(rows, args.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
