"""What a run that is kept costs: the segment store beside the bare disk, durable pushes, cold fetches, recovery, memory."""

import contextlib
import pathlib
import statistics
import time

from harness import Failed, Programs, Server, cpu_seconds_of

from .base import Measure, Result, median_of

ROLLOUT_BYTES = 500_000
BYTES_PER_TASK, BYTES_PER_ROLLOUT = 96, 192  # metadata, by the bounds of core.py


def command(programs: Programs, config: dict, run: dict) -> str:
    """The load's command after the daemon's."""
    flags = (f"--{name}={value}" for name, value in config.items())
    return f"{programs.readable(['bufferd', *flags])} & {run['command']}"


def bare_disk(programs: Programs, folder: pathlib.Path) -> dict:
    """Plain writes with fdatasync, and plain reads, in GB/s, in the pattern of the store."""
    run = programs.json_of([programs.path("spill_benchmark"), f"--directory={folder}", "--rounds=1", "--nostore", "--json"])
    return {"write": run["spill_write"]["limit"], "read": run["spill_read"]["limit"], "command": run["command"]}


class Spill(Measure):
    """Payloads of 500 KB written to segments and read back, against plain calls of the same pattern in turn."""

    name = "spill"
    at_least = 0.9

    def results(self, programs: Programs, limits_only: bool) -> list[Result]:
        with programs.folder() as folder:
            words = [programs.path("spill_benchmark"), f"--directory={folder}", f"--rounds={programs.settings.rounds}",
                     "--json", *(["--nostore"] if limits_only else [])]
            run = programs.json_of(words)
        results = []
        for name in ("spill_write", "spill_read"):
            figures = run[name]
            result = Result(name, None, "GB/s", run["command"], limit=figures["limit"], bound=f"ratio >= {self.at_least}")
            if not limits_only:
                result.value, result.ratio = figures["value"], figures["ratio"]
                result.details = {"cpu_s_per_gb": figures["cpu_s_per_gb"]}
            results.append(result)
        return results


class PushDurable(Measure):
    """Rollouts of 500 KB acknowledged when they are synced, against the lower of two limits: bare gRPC with copy and crc,
    and the bare disk. One channel is a chain of sends and reads that the disk's work on the same two cores interrupts, with
    any window (--window=16 to 128 measure the same); over four channels the cores are busy all the time."""

    at_least = 0.8
    window = 32
    memory = 2 << 30

    def __init__(self, channels: int):
        self.name = "push_durable_500k" if channels == 1 else f"push_durable_500k_{channels}_channels"
        self.channels = channels

    def results(self, programs: Programs, limits_only: bool) -> list[Result]:
        rounds = programs.settings.rounds
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(programs.folder())
            limit_server = stack.enter_context(programs.limit_server())
            config = {"storage.directory": folder / "data", "memory.payload_bytes_max": self.memory}
            script = f"store:{ROLLOUT_BYTES}>8"
            ours, wire, disk = [], [], []
            if not limits_only:
                server = stack.enter_context(programs.daemon(**config))
                script = self.push(programs, server)["script"]
            for _ in range(rounds):
                if not limits_only:
                    ours.append(self.push(programs, server))
                wire.append(programs.bench(limit_server, "limit", script=script, channels=self.channels, window=self.window))
                disk.append(bare_disk(programs, folder))
        limits = [min(a["gb_per_s"], b["write"]) for a, b in zip(wire, disk, strict=True)]
        details = {"limit_grpc": median_of(wire, "gb_per_s"), "limit_disk": median_of(disk, "write"),
                   "limit_command": wire[0]["command"], "limit_disk_command": disk[0]["command"]}
        result = Result(self.name, None, "GB/s", wire[0]["command"], limit=statistics.median(limits),
                        bound=f"ratio >= {self.at_least}", details=details)
        if ours:
            result.value, result.command = median_of(ours, "gb_per_s"), command(programs, config, ours[0])
            result.ratio = statistics.median(run["gb_per_s"] / limit for run, limit in zip(ours, limits, strict=True))
            result.details = {"cpu_s_per_gb": median_of(ours, "server_cpu_s_per_gb"), **details}
        return [result]

    def push(self, programs: Programs, server: Server) -> dict:
        return programs.bench(server, "push", rollout_bytes=ROLLOUT_BYTES, channels=self.channels, window=self.window)


class FetchCold(Measure):
    """The micro-batches of a step many times as large as memory, each fetched once, against plain reads. What bare gRPC
    sends of the same messages is told too: where it is less than plain reads, no fetch can be as fast as they are."""

    name = "fetch_cold"
    at_least = 0.8
    micro_batches = 3000  # of 1.1 MB
    window = 4
    memory = {"memory.payload_bytes_max": 384 << 20, "memory.completion_reserve_bytes": 64 << 20}

    def results(self, programs: Programs, limits_only: bool) -> list[Result]:
        ours, disk, wire = [], [], []
        with contextlib.ExitStack() as stack:
            limit_server = stack.enter_context(programs.limit_server())
            for _ in range(programs.settings.rounds):
                with programs.folder() as folder:
                    config = {"storage.directory": folder / "data", **self.memory}
                    if not limits_only:
                        with programs.daemon(**config) as server:
                            ours.append(self.fetch(programs, server))
                        wire.append(programs.bench(limit_server, "limit", script=ours[-1]["script"], window=self.window))
                    disk.append(bare_disk(programs, folder))
        result = Result(self.name, None, "GB/s", disk[0]["command"], limit=median_of(disk, "read"),
                        bound=f"ratio >= {self.at_least}", details={"limit_command": disk[0]["command"]})
        if ours:
            result.value, result.command = median_of(ours, "gb_per_s"), command(programs, config, ours[0])
            result.ratio = statistics.median(a["gb_per_s"] / b["read"] for a, b in zip(ours, disk, strict=True))
            result.details = {"cpu_s_per_gb": median_of(ours, "server_cpu_s_per_gb"),
                              "grpc": median_of(wire, "gb_per_s"),
                              "grpc_ratio": statistics.median(a["gb_per_s"] / b["gb_per_s"]
                                                              for a, b in zip(ours, wire, strict=True)),
                              "grpc_command": wire[0]["command"], **result.details}
        return [result]

    def fetch(self, programs: Programs, server: Server) -> dict:
        return programs.bench(server, "fetch", tokens=65536, window=self.window, micro_batches=self.micro_batches,
                              operations=self.micro_batches, seconds=60, warm_up_seconds=0)


class BigRun(Measure):
    """A run of many tasks and rollouts that are held."""

    tasks, rollouts = 10_000_000, 1_000_000
    filling_seconds = 300
    memory = {"memory.payload_bytes_max": 2 << 30, "memory.task_bytes_max": 4 << 30}

    def fill(self, programs: Programs, server: Server) -> dict:
        return programs.bench(server, "assign", slack_seconds=2 * self.filling_seconds, lanes=8, tasks=self.tasks,
                              operations=self.rollouts, keep="true", seconds=self.filling_seconds, warm_up_seconds=0)


class SnapshotPause(BigRun):
    """The longest time that a shard's loop stands still for a snapshot, of those taken while a big run is filled."""

    name = "snapshot_pause_ms"
    most_ms = 5.0
    at_least = 5  # snapshots

    def results(self, programs: Programs, limits_only: bool) -> list[Result]:
        if limits_only:
            return []
        with programs.folder() as folder:
            config = {"storage.directory": folder / "data", "storage.snapshot_log_bytes": 64 << 20, **self.memory}
            with programs.daemon(**config) as server:
                filled = self.fill(programs, server)
                metrics = server.metrics()
        of_shard = {name.removeprefix("forebay_").partition("{")[0]: value for name, value in metrics.items()
                    if name.startswith("forebay_snapshot") and 'log="shard-0"' in name}
        taken = of_shard.get("snapshots_total", 0)
        if taken < self.at_least:
            raise Failed(f"{self.name}: {taken:.0f} snapshots of shard-0 were taken, at least {self.at_least} are expected")
        details = {"snapshots": taken, "mean_ms": 1e3 * of_shard["snapshot_pause_seconds_total"] / taken,
                   "last_s": of_shard["snapshot_seconds"], "last_bytes": of_shard["snapshot_bytes"],
                   "last_copied_bytes": of_shard["snapshot_copied_bytes"], "tasks": self.tasks, "rollouts": self.rollouts}
        return [Result(self.name, 1e3 * of_shard["snapshot_pause_seconds_max"], "ms", command(programs, config, filled),
                       bound=f"value <= {self.most_ms}", details=details)]


class Recovery(BigRun):
    """From the start of a killed daemon until it listens."""

    name = "recovery_s"
    most_seconds = 10.0

    def results(self, programs: Programs, limits_only: bool) -> list[Result]:
        if limits_only:
            return []
        with programs.folder() as folder:
            config = {"storage.directory": folder / "data", **self.memory}
            with programs.daemon(**config) as server:
                filled = self.fill(programs, server)
            begin = time.monotonic()
            with programs.daemon(start_seconds=self.filling_seconds, **config) as server:
                seconds = time.monotonic() - begin
                cpu_seconds = cpu_seconds_of(server.pid)
        return [Result(self.name, seconds, "s", command(programs, config, filled), bound=f"value <= {self.most_seconds}",
                       details={"cpu_s": cpu_seconds, "tasks": self.tasks, "rollouts": self.rollouts})]


class PeakOfMemory(Measure):
    """The daemon's peak while 20 GiB that are kept pass through a budget of 1 GiB, over budget and metadata."""

    name = "resident_peak_ratio"
    most = 1.2
    budget = 1 << 30
    written = 20 << 30
    writing_seconds = 300

    def results(self, programs: Programs, limits_only: bool) -> list[Result]:
        if limits_only:
            return []
        rollouts = self.written // ROLLOUT_BYTES + 1
        with programs.folder() as folder:
            config = {"storage.directory": folder / "data", "memory.payload_bytes_max": self.budget}
            with programs.daemon(**config) as server:
                run = programs.bench(server, "push", slack_seconds=self.writing_seconds, rollout_bytes=ROLLOUT_BYTES,
                                     window=32, operations=rollouts, keep="true", seconds=self.writing_seconds,
                                     warm_up_seconds=0)
        metadata = rollouts * BYTES_PER_ROLLOUT + 1000 * BYTES_PER_TASK
        return [Result(self.name, run["server_peak_rss_bytes"] / (self.budget + metadata), "ratio",
                       command(programs, config, run),
                       bound=f"value <= {self.most}",
                       details={"peak_rss_bytes": run["server_peak_rss_bytes"], "gb_per_s": run["gb_per_s"]})]


MEASURES = [Spill(), PushDurable(channels=1), PushDurable(channels=4), FetchCold(), SnapshotPause(), Recovery(), PeakOfMemory()]
