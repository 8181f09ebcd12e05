"""The pure core without a server: planning time and bytes of state."""

import statistics

from harness import Programs

from .base import Measure, Result


class PlanStep(Measure):
    """Packing 100,000 rollouts for 1,024 ranks, in one thread."""

    name = "plan_step_ms"
    most_ms = 50.0
    most_imbalance = 0.01

    def results(self, programs: Programs, limits_only: bool) -> list[Result]:
        if limits_only:
            return []
        run = programs.json_of([
            programs.path("pack_benchmark"), "--benchmark_format=json", "--benchmark_repetitions=5",
            "--benchmark_filter=rollouts:100000/ranks:1024/mini:1/budget:65536"])
        median = next(entry for entry in run["benchmarks"] if entry.get("aggregate_name") == "median")
        to_ms = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": 1e3}[median["time_unit"]]
        time = Result(self.name, median["cpu_time"] * to_ms, "ms", run["command"], bound=f"value <= {self.most_ms}",
                      details={"cost_imbalance": median["imbalance"]})
        imbalance = Result("plan_step_imbalance", median["imbalance"], "max/mean - 1", run["command"],
                           bound=f"value <= {self.most_imbalance}")
        return [time, imbalance]


class Pack100k(Measure):
    """A step of 100,000 rollouts in the ledger, from 1, 8 and 64 shards, for 256 ranks, beside Karmarkar-Karp, which
    knows no micro-batches. The worst of two kinds of lengths and three numbers of shards."""

    name = "pack_100k"
    most_ms = 100.0
    least_fill = 0.99
    most_imbalance = 0.01

    def results(self, programs: Programs, limits_only: bool) -> list[Result]:
        if limits_only:
            return []
        runs = [programs.json_of([programs.path("plan-step")]) for _ in range(programs.settings.rounds)]
        steps = [[run["steps"][i] for run in runs] for i in range(len(runs[0]["steps"]))]
        seals = [statistics.median(step["seal_s"] for step in rounds) for rounds in steps]
        last = runs[-1]["steps"]
        fill = min(step["fill"] for step in last)
        imbalance = max(step["imbalance"] for step in last)
        peers = [step for step in last if "karmarkar_karp_s" in step]
        details = {
            "fill": fill, "imbalance": imbalance, "token_fill": min(step["token_fill"] for step in last),
            "karmarkar_karp_imbalance": max(step["karmarkar_karp_imbalance"] for step in peers),
            "karmarkar_karp_ms": max(step["karmarkar_karp_s"] for step in peers) * 1e3,
            **{f"{step['lengths']}_{step['shards']}_ms": seal * 1e3 for step, seal in zip(last, seals, strict=True)},
        }
        command = runs[0]["command"]
        return [
            Result(self.name, max(seals) * 1e3, "ms", command, bound=f"value <= {self.most_ms}", details=details),
            Result("pack_100k_fill", fill, "of lower bound", command, bound=f"value >= {self.least_fill}"),
            Result("pack_100k_imbalance", imbalance, "max/mean - 1", command, bound=f"value <= {self.most_imbalance}"),
        ]


class BytesOfState(Measure):
    """Resident bytes that each task and each rollout of one sequence add, at 10 million tasks."""

    name = "bytes_of_state"
    most = {"bytes_per_task": 96.0, "bytes_per_rollout": 192.0}

    def results(self, programs: Programs, limits_only: bool) -> list[Result]:
        if limits_only:
            return []
        run = programs.json_of([programs.path("state-bytes"), "--tasks=10000000", "--rollouts=10000000"],
                               slack_seconds=600)
        return [Result(name, run[name], "bytes", run["command"], bound=f"value <= {most}")
                for name, most in self.most.items()]


MEASURES = [PlanStep(), Pack100k(), BytesOfState()]
