"""A cluster of three under a light load: how long it stands still when its leader is killed, frozen or leaves."""

import contextlib
import signal
import statistics
import time
from collections.abc import Iterator

from cluster import Cluster, SteadyLoad, cluster
from harness import Programs

from .base import Measure, Result

ASSIGNMENTS_BETWEEN = 20  # the load runs steadily before the next round


def longest_gap(events: list[float], moment: float) -> tuple[float, float]:
    """Of the gaps between neighbours that end after the moment the longest: begin and end. An event that was under way
    when the moment came does not end it."""
    return max((pair for pair in zip(events, events[1:], strict=False) if pair[1] > moment), key=lambda pair: pair[1] - pair[0])


class LeaderMeasure(Measure):
    """Rounds in which the leader goes, each from a cluster that is in sync."""

    failovers = 20
    quick_failovers = 3

    def rounds(self, programs: Programs) -> int:
        return self.quick_failovers if programs.settings.quick else self.failovers

    @contextlib.contextmanager
    def running(self, programs: Programs, **config: object) -> Iterator[tuple[Cluster, SteadyLoad]]:
        with programs.folder() as folder, cluster(programs, folder, **config) as nodes:
            self.fill(programs, nodes)
            load = SteadyLoad(programs, nodes.seeds, folder)
            try:
                yield nodes, load
                load.close()
            finally:
                load.kill()

    def fill(self, programs: Programs, nodes: Cluster) -> None:
        """What the store holds before."""

    def one_round(self, nodes: Cluster, load: SteadyLoad, fault: signal.Signals) -> tuple[float, float, float, float]:
        """When the leader was sent the signal, when the last assignment before and the first after it came, and when the
        first micro-batch after that."""
        nodes.await_in_sync()
        leader = nodes.leader()
        load.await_after("assignment", time.monotonic(), count=ASSIGNMENTS_BETWEEN)
        load.await_after("fetch", time.monotonic(), count=ASSIGNMENTS_BETWEEN)
        begin = time.monotonic()
        leader.signal(fault)
        nodes.await_view(lambda view: view.leader != leader.number, "another node leads")
        assignments = load.await_after("assignment", time.monotonic(), count=ASSIGNMENTS_BETWEEN)
        last, first = longest_gap(assignments, begin)
        fetches = load.await_after("fetch", first)
        if fault == signal.SIGSTOP:
            leader.signal(signal.SIGCONT)
        else:
            leader.wait()
            leader.start()
        return begin, last, first, next(at for at in fetches if at > first)


class Failover(LeaderMeasure):
    """From the signal to the leader until the first new assignment, and until the first micro-batch fetched after it."""

    most_seconds = 1.5

    def __init__(self, name: str, fault: signal.Signals):
        self.name, self.fault = name, fault

    def results(self, programs: Programs, limits_only: bool) -> list[Result]:
        if limits_only:
            return []
        with self.running(programs) as (nodes, load):
            times = [self.one_round(nodes, load, self.fault) for _ in range(self.rounds(programs))]
        assignments = [first - begin for begin, _, first, _ in times]
        fetches = [fetch - begin for begin, _, _, fetch in times]
        return [Result(self.name, statistics.median(assignments), "s", f"{load.command} & kill -{self.fault.name} leader",
                       bound=f"value <= {self.most_seconds}",
                       details={"worst_s": max(assignments), "fetch_s": statistics.median(fetches),
                                "fetch_worst_s": max(fetches), "rounds": len(times), **self.details()})]

    def details(self) -> dict:
        return {}


class FailoverBig(Failover):
    """The same with a store of some GB and many tasks."""

    failovers = 20
    tasks, rollouts, rollout_bytes = 1_000_000, 4_000, 500_000
    filling_seconds = 300

    def fill(self, programs: Programs, nodes: Cluster) -> None:
        server = nodes.leader().server()
        flags = {"slack_seconds": self.filling_seconds, "seconds": self.filling_seconds, "warm_up_seconds": 0}
        programs.bench(server, "assign", lanes=8, tasks=self.tasks, operations=self.tasks, keep="true", **flags)
        programs.bench(server, "push", rollout_bytes=self.rollout_bytes, window=32, operations=self.rollouts, keep="true",
                       **flags)

    def details(self) -> dict:
        return {"tasks": self.tasks, "store_bytes": self.rollouts * self.rollout_bytes}


class Switchover(LeaderMeasure):
    """The longest time between two assignments while the leader leaves by SIGTERM."""

    name = "switchover_ms"
    most_ms = 200.0

    def results(self, programs: Programs, limits_only: bool) -> list[Result]:
        if limits_only:
            return []
        with self.running(programs) as (nodes, load):
            times = [self.one_round(nodes, load, signal.SIGTERM) for _ in range(self.rounds(programs))]
        gaps = [1e3 * (first - last) for _, last, first, _ in times]
        return [Result(self.name, statistics.median(gaps), "ms", f"{load.command} & kill -SIGTERM leader",
                       bound=f"value <= {self.most_ms}", details={"worst_ms": max(gaps), "rounds": len(times)})]


MEASURES = [Failover("failover_kill_s", signal.SIGKILL), Failover("failover_freeze_s", signal.SIGSTOP),
            FailoverBig("failover_kill_big_s", signal.SIGKILL), FailoverBig("failover_freeze_big_s", signal.SIGSTOP),
            Switchover()]
