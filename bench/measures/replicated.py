"""What replication costs: CPU of the node that leads and of one that follows, and how fast a node that was away has everything again."""

from __future__ import annotations

import contextlib
import dataclasses
import statistics
import time

from cluster import Cluster, Node, cluster
from harness import Failed, Programs, Server

from .base import Measure, Result, median_of
from .durable import bare_disk, command

PAYLOAD_BYTES_MAX = 2 << 30
# A machine that others use too must not cost the leader its lead while something else is measured.
PATIENT = {"cluster.suspect_ms": 3000}


@dataclasses.dataclass(frozen=True)
class Load:
    """One load, the same for the leading node of three and for the daemon alone."""

    suffix: str  # of the figures' names
    subcommand: str
    flags: dict


class ReplicatedCpu(Measure):
    """CPU per operation of the leading node of three, and of one that follows, over that of a durable daemon alone."""

    name = "replicated_cpu"
    primary_most, backup_most = 1.5, 0.8
    config = {"memory.payload_bytes_max": PAYLOAD_BYTES_MAX}
    loads = (Load("", "assign", {"batch": 64, "lanes": 8}),
             Load("_unary", "assign", {"batch": 1, "lanes": 64}),
             Load("_push", "push", {"rollout_bytes": 500_000, "window": 32}))

    def results(self, programs: Programs, limits_only: bool) -> list[Result]:
        if limits_only:
            return []
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(programs.folder())
            nodes = stack.enter_context(cluster(programs, folder, **PATIENT, **self.config))
            alone = stack.enter_context(programs.daemon(**{"storage.directory": folder / "alone", **self.config}))
            return [result for load in self.loads for result in self.pair(programs, nodes, alone, load)]

    def pair(self, programs: Programs, nodes: Cluster, alone: Server, load: Load) -> list[Result]:
        leader = nodes.leader()
        followers = [node for node in nodes.nodes if node is not leader]
        beside = ",".join(str(node.pid) for node in followers)

        def replicated() -> dict:
            run = programs.bench(leader.server(), load.subcommand, beside_pids=beside, **load.flags)
            nodes.await_in_sync()
            if nodes.leader() is not leader:
                raise Failed(f"{self.name}: the lead moved while it was measured")
            return run

        runs, limits = [], []
        pair = [lambda: runs.append(replicated()),
                lambda: limits.append(programs.bench(alone, load.subcommand, **load.flags))]
        for run in pair:  # fills caches, and is not counted
            run()
        runs.clear()
        limits.clear()
        for turn in range(programs.settings.rounds):
            for run in pair if turn % 2 == 0 else reversed(pair):
                run()
        return self.figures(load, runs, limits)

    def figures(self, load: Load, runs: list[dict], limits: list[dict]) -> list[Result]:
        """Of the followers the dearer one counts, round by round."""
        primary = [run["server_cpu_us_per_op"] for run in runs]
        backup = [max(run["beside_cpu_us_per_op"]) for run in runs]
        base = [run["server_cpu_us_per_op"] for run in limits]
        results = []
        for what, most, values in (("primary", self.primary_most, primary), ("backup", self.backup_most, backup)):
            details = {"ops_per_s": median_of(runs, "ops_per_s"), "limit_ops_per_s": median_of(limits, "ops_per_s"),
                       "client_cpu_us_per_op": median_of(runs, "client_cpu_us_per_op"),
                       "limit_client_cpu_us_per_op": median_of(limits, "client_cpu_us_per_op"),
                       "limit_command": limits[0]["command"]}
            results.append(Result(f"replicated_{what}_cpu{load.suffix}", statistics.median(values), "us/op",
                                  runs[0]["command"], limit=statistics.median(base),
                                  ratio=statistics.median(a / b for a, b in zip(values, base, strict=True)),
                                  bound=f"ratio <= {most}", details=details))
        return results


class CatchUp(Measure):
    """A node is killed under load, and comes back when the others have written on: until it is in sync again. What it lacks
    comes from the log while the leader has kept that, and else by a snapshot of the state. The limit is the lower of what the
    link carries (bare gRPC) and what the disk takes in the same round."""

    quick_rounds, most_rounds = 1, 3
    tasks = 1_000_000
    writing_seconds = 240
    memory = {"memory.payload_bytes_max": PAYLOAD_BYTES_MAX, "memory.task_bytes_max": 4 << 30}
    link_script = "stream:1048576>8"

    def __init__(self, name: str, operations: int, by_snapshot: bool):
        self.name, self.operations, self.by_snapshot = name, operations, by_snapshot

    def results(self, programs: Programs, limits_only: bool) -> list[Result]:
        if limits_only:
            return []
        rounds = self.quick_rounds if programs.settings.quick else min(programs.settings.rounds, self.most_rounds)
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(programs.folder())
            nodes = stack.enter_context(cluster(programs, folder, **PATIENT, **self.memory))
            limit_server = stack.enter_context(programs.limit_server())
            self.write(programs, nodes, self.tasks // 10)  # a state of some size, and its tasks
            times = []
            for _ in range(rounds):
                away = self.one_round(programs, nodes)
                away["disk_mb_per_s"] = 1e3 * bare_disk(programs, folder)["write"]
                link = programs.bench(limit_server, "limit", script=self.link_script, window=8)
                away["link_mb_per_s"] = 1e3 * link["gb_per_s"]
                times.append(away)
        return [self.figure(times)]

    def write(self, programs: Programs, nodes: Cluster, operations: int) -> dict:
        """Rollouts that are kept; the first time the tasks too."""
        return programs.bench(nodes.leader().server(), "assign", slack_seconds=self.writing_seconds, lanes=8,
                              tasks=self.tasks, operations=operations, keep="true", seconds=self.writing_seconds,
                              warm_up_seconds=0)

    def one_round(self, programs: Programs, nodes: Cluster) -> dict:
        nodes.await_in_sync()
        leader = nodes.leader()
        node = next(node for node in nodes.nodes if node is not leader)
        before = positions(leader)
        node.kill()
        written = self.write(programs, nodes, self.operations)
        nodes.await_out_of_sync(node)
        sent, cpu_before = Sent.to(leader, node), leader.cpu_seconds()
        missed = positions(leader) - before
        begin = time.monotonic()
        node.start()
        started = time.monotonic()
        nodes.await_in_sync(seconds=self.writing_seconds)
        end = time.monotonic()
        if nodes.leader() is not leader:
            raise Failed(f"{self.name}: the lead moved while it was measured")
        sent = Sent.to(leader, node).since(sent)
        if (sent.snapshots > 0) != self.by_snapshot:
            raise Failed(f"{self.name}: {sent.snapshots:.0f} snapshots were sent")
        return {"seconds": end - begin, "start_seconds": started - begin, "entries": missed, "ops": written["operations"],
                "load_ops_per_s": written["ops_per_s"],
                "bytes": sent.message_bytes + sent.snapshot_bytes, "command": written["command"],
                "leader_cpu_s": leader.cpu_seconds() - cpu_before, "node_cpu_s": node.cpu_seconds()}

    def figure(self, times: list[dict]) -> Result:
        """The rate counts from when the node listens: before that it reads what it has. It applies all of it, so the limit is
        far away; that it is faster than the load that wrote it is what ends it under load."""
        for away in times:
            seconds = away["seconds"] - away["start_seconds"]
            away["mb_per_s"], away["entries_per_s"] = away["bytes"] / 1e6 / seconds, away["entries"] / seconds
            away["ops_per_s"] = away["ops"] / seconds
            away["limit"] = min(away["disk_mb_per_s"], away["link_mb_per_s"])
        details = {key: median_of(times, key) for key in ("entries_per_s", "ops_per_s", "load_ops_per_s", "seconds", "start_seconds",
                                                          "entries", "bytes", "leader_cpu_s", "node_cpu_s", "disk_mb_per_s", "link_mb_per_s")}
        return Result(self.name, median_of(times, "mb_per_s"), "MB/s", f"{times[0]['command']} while a node is away",
                      limit=median_of(times, "limit"),
                      ratio=statistics.median(away["mb_per_s"] / away["limit"] for away in times),
                      details={**details, "worst_s": max(away["seconds"] for away in times), "rounds": len(times)})


@dataclasses.dataclass(frozen=True)
class Sent:
    """What a node has sent to another one since it started."""

    message_bytes: float
    snapshot_bytes: float
    snapshots: float

    @staticmethod
    def to(leader: Node, node: Node) -> Sent:
        metrics = leader.server().metrics()
        return Sent(*(metrics[f'forebay_peer_{what}_total{{peer="{node.number}",direction="sent"}}']
                      for what in ("bytes", "snapshot_bytes", "snapshots")))

    def since(self, before: Sent) -> Sent:
        return Sent(self.message_bytes - before.message_bytes, self.snapshot_bytes - before.snapshot_bytes,
                    self.snapshots - before.snapshots)


def positions(node: Node) -> float:
    """Entries of all machines' logs."""
    return sum(value for name, value in node.server().metrics().items()
               if name.startswith("forebay_replica_position") and 'what="last"' in name)


# Some 35 and 140 MB of log; the leader keeps 64 MiB for who is away.
MEASURES = [ReplicatedCpu(), CatchUp("catch_up_log", operations=500_000, by_snapshot=False),
            CatchUp("catch_up_snapshot", operations=2_000_000, by_snapshot=True)]
