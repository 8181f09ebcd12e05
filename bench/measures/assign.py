"""Assignments acquired, their tiny rollouts pushed and acknowledged: operations a second."""

from contextlib import contextmanager

from harness import Programs

from .base import PairedMeasure, Result

PAYLOAD_BYTES_MAX = 2 << 30


class AssignComplete(PairedMeasure):
    """`batch` assignments a call, `batch` rollouts a frame."""

    unit = "ops/s"
    figure = "ops_per_s"
    cpu = "server_cpu_us_per_op"
    details = ("client_cpu_us_per_op",)
    tasks = 100_000

    def __init__(self, name: str, batch: int, at_least: float, lanes: int = 8):
        self.name, self.batch, self.at_least, self.lanes = name, batch, at_least, lanes
        # About what an assignment (80 bytes) and a rollout of 16 tokens (110 bytes) take.
        self.script = f"unary:40>{80 * batch} stream:{110 * batch}>8"

    @contextmanager
    def ours(self, programs: Programs):
        programs.require("assign")
        with programs.daemon(**{"memory.payload_bytes_max": PAYLOAD_BYTES_MAX}) as server:
            yield lambda: programs.bench(server, "assign", batch=self.batch, tasks=self.tasks, lanes=self.lanes)

    @contextmanager
    def limit(self, programs: Programs):
        with programs.limit_server() as server:
            yield lambda script: programs.bench(
                server, "limit", script=script, lanes=self.lanes, operations_per_round=self.batch)


class AssignCompleteManyTasks(AssignComplete):
    """The same with 10^7 tasks, compared with our own figure at 10^5."""

    tasks = 10_000_000

    @contextmanager
    def limit(self, programs: Programs):
        few = AssignComplete(self.name, self.batch, self.at_least, self.lanes)
        with few.ours(programs) as run:
            yield lambda script: run()

    def results(self, programs: Programs, limits_only: bool) -> list[Result]:
        return [] if limits_only else super().results(programs, limits_only)


MEASURES = [
    AssignComplete("assign_complete_ops_64", 64, 0.5),
    AssignCompleteManyTasks("assign_complete_ops_64_10m_tasks", 64, 0.6),
    AssignComplete("assign_complete_ops_256", 256, 0.3),
    AssignCompleteManyTasks("assign_complete_ops_256_10m_tasks", 256, 0.6),
    # One at a time: a unary Acquire of one assignment, a frame of one rollout; 64 at once.
    AssignComplete("assign_unary_ops", 1, 0.8, lanes=64),
]
