"""The pure core without a server: planning time and bytes of state."""

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


MEASURES = [PlanStep(), BytesOfState()]
