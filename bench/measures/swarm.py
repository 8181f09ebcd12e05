"""Ten thousand actors at once, each on a connection of its own."""

from __future__ import annotations

import statistics

from harness import Programs, Server

from .base import Measure, Result, median_of
from .durable import command


class Swarm(Measure):
    """Memory of a connection, CPU of a renewal, and how long an actor waits for its next assignment meanwhile; beside it a
    bare gRPC server that is told the same messages at the same times."""

    name = "swarm"
    connections = 10_000
    quick_connections = 1_000
    most_rounds = 3
    slack_seconds = 240
    # Until a source knows how large its rollouts are, each assignment reserves room for one.
    config = {"memory.payload_bytes_max": 64 << 30}

    def results(self, programs: Programs, limits_only: bool) -> list[Result]:
        if limits_only:
            return []
        programs.require("swarm")
        runs, limits = [], []
        for _ in range(min(programs.settings.rounds, self.most_rounds)):
            # Each with a server of its own: what a connection takes is seen in one that had none before.
            with programs.folder() as folder:
                config = {"storage.directory": folder / "data", **self.config}
                with programs.daemon(**config) as server:
                    runs.append(self.swarm(programs, server))
            with programs.limit_server() as server:
                limits.append(self.swarm(programs, server, script=runs[-1]["script"]))
        return self.figures(command(programs, config, runs[0]), runs, limits)

    def swarm(self, programs: Programs, server: Server, **flags: object) -> dict:
        connections = self.quick_connections if programs.settings.quick else self.connections
        return programs.bench(server, "swarm", slack_seconds=self.slack_seconds, channels=connections, **flags)

    def figures(self, command_line: str, runs: list[dict], limits: list[dict]) -> list[Result]:
        fields = {"swarm_bytes_per_connection": ("server_bytes_per_connection", "bytes"),
                  "swarm_renewal_cpu": ("server_cpu_us_per_renewal", "us"),
                  "swarm_acquire_p99_ms": ("acquire_p99_ms", "ms")}
        beside = {"swarm_bytes_per_connection": ("connections", "connect_seconds", "server_bytes_per_connection_after"),
                  "swarm_renewal_cpu": ("renewals", "renew_median_ms", "renew_p99_ms", "renew_worst_ms"),
                  "swarm_acquire_p99_ms": ("acquires", "acquire_median_ms", "acquire_worst_ms", "renewals_beside",
                                           "turning_server_cpu_s", "skipped")}
        results = []
        for name, (field, unit) in fields.items():
            details = {key: value for other in beside[name]
                       for key, value in ((other, median_of(runs, other)), (f"limit_{other}", median_of(limits, other)))}
            ratio = statistics.median(a[field] / b[field] for a, b in zip(runs, limits, strict=True))
            results.append(Result(name, median_of(runs, field), unit, command_line, limit=median_of(limits, field), ratio=ratio,
                                  details={**details, "limit_command": limits[0]["command"]}))
        return results


MEASURES = [Swarm()]
