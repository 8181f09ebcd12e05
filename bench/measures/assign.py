"""Assignments acquired, their tiny rollouts pushed and acknowledged: operations a second."""

from contextlib import contextmanager

from harness import Programs, Server

from .base import Measure, PairedMeasure, Result, in_turn, median_of

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
        self.script = f"unary:40>{80 * batch} store:{110 * batch}>8"

    @contextmanager
    def ours(self, programs: Programs):
        programs.require("assign")
        with programs.daemon(**{"memory.payload_bytes_max": PAYLOAD_BYTES_MAX}) as server:
            yield lambda: programs.bench(server, "assign", batch=self.batch, tasks=self.tasks, lanes=self.lanes)

    @contextmanager
    def limit(self, programs: Programs, **flags: object):
        """The limit's client does what ours does: it reads the leases and encodes the rollouts (limit_actor.h)."""
        flags = flags or {"as_actor": "true", "batch": self.batch}
        with programs.limit_server() as server:
            yield lambda script: programs.bench(server, "limit", script=script, lanes=self.lanes, **flags)

    def beside(self, programs: Programs, script: str) -> dict:
        """What a client reaches that sends the same ready bytes each time and reads nothing: no actor can."""
        with self.limit(programs, operations_per_round=self.batch) as limit:
            runs = [limit(script) for _ in range(programs.settings.rounds)]
        return {"ready_made": median_of(runs, self.figure), "ready_made_cpu_us_per_op": median_of(runs, self.cpu),
                "ready_made_command": runs[0]["command"]}


class ManyTasks(Measure):
    """AssignComplete with 10^7 tasks, compared with our own figure at 10^5; the tasks are added once for all batches."""

    name = "assign_complete_ops_10m_tasks"
    tasks = 10_000_000
    adding_seconds = 300
    at_least = 0.6

    def __init__(self, *batches: int):
        self.batches = batches

    def results(self, programs: Programs, limits_only: bool) -> list[Result]:
        if limits_only:
            return []
        programs.require("assign")
        config = {"memory.payload_bytes_max": PAYLOAD_BYTES_MAX}
        with programs.daemon(**config) as many, programs.daemon(**config) as few:
            return [self.pair(programs, many, few, batch) for batch in self.batches]

    def pair(self, programs: Programs, many: Server, few: Server, batch: int) -> Result:
        measure = AssignComplete(f"assign_complete_ops_{batch}_10m_tasks", batch, self.at_least)

        def ours() -> dict:
            return programs.bench(many, "assign", slack_seconds=self.adding_seconds, batch=batch, tasks=self.tasks,
                                  lanes=measure.lanes)

        def limit(_script: str) -> dict:
            return programs.bench(few, "assign", batch=batch, tasks=measure.tasks, lanes=measure.lanes)

        return measure.result(*in_turn(programs.settings.rounds, ours, limit, script="")[:2], beside={})


MEASURES = [
    AssignComplete("assign_complete_ops_64", 64, 0.5),
    AssignComplete("assign_complete_ops_256", 256, 0.3),
    ManyTasks(64, 256),
    # One at a time: a unary Acquire of one assignment, a frame of one rollout; 64 at once.
    AssignComplete("assign_unary_ops", 1, 0.8, lanes=64),
]
