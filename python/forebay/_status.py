"""What the daemon says of itself, of sources and of evaluations, as plain values."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Dict, List, Mapping

from . import _errors
from ._connection import Connection
from ._messages import admin as wire
from ._policy import Version, version_of

SERVICE = "/forebay.v1.AdminService/"
_VERDICTS = {wire.VERDICT_OK: "ok", wire.VERDICT_DEGRADED: "degraded", wire.VERDICT_UNAVAILABLE: "unavailable"}
LONG_POLL_S = 10.0


@dataclass(frozen=True)
class Status:
    """`verdict` is "ok", "degraded" or "unavailable", with `reasons`; `waits` says what waits for what."""

    verdict: str
    reasons: List[str]
    waits: List[str]
    published: Version
    next_step: int
    train_version: Version
    checkpoint: int
    retained_bytes: int
    kept_rollouts: int
    kept_bytes: int
    oldest_replay: int
    actors: int
    leases: int
    tasks: int
    groups_open: int
    groups_ready: int
    groups_reserved: int
    rollouts_held: int
    payload_bytes: int
    payload_bytes_max: int
    resident_bytes: int
    uptime_s: float
    server: str
    run: int
    shards: int

    def __str__(self) -> str:
        lines = [
            f"{self.verdict}: version {self.published}, next step {self.next_step}, {self.actors} actors, "
            f"{self.leases} attempts out, {self.groups_ready} groups ready, {self.groups_open} open, "
            f"{self.payload_bytes / 1e6:.1f} of {self.payload_bytes_max / 1e6:.0f} MB"
        ]
        return "\n".join(lines + [f"  {text}" for text in [*self.reasons, *self.waits]])


def status_of(m: wire.GetStatusResponse) -> Status:
    """From the wire."""
    return Status(
        verdict=_VERDICTS.get(m.verdict, "unknown"),
        reasons=list(m.reasons),
        waits=list(m.waits),
        published=version_of(m.published),
        next_step=m.next_step,
        train_version=version_of(m.train_version),
        checkpoint=m.checkpoint,
        retained_bytes=m.retained_bytes,
        kept_rollouts=m.kept_rollouts,
        kept_bytes=m.kept_bytes,
        oldest_replay=m.oldest_replay,
        actors=m.actors,
        leases=m.leases,
        tasks=m.tasks,
        groups_open=m.groups_open,
        groups_ready=m.groups_ready,
        groups_reserved=m.groups_reserved,
        rollouts_held=m.rollouts_held,
        payload_bytes=m.payload_bytes,
        payload_bytes_max=m.payload_bytes_max,
        resident_bytes=m.resident_bytes,
        uptime_s=m.uptime_ms / 1000,
        server=m.version,
        run=m.run,
        shards=m.shards,
    )


@dataclass(frozen=True)
class Source:
    """A source's state; counts are cumulative, `dropped` is by reason, `reason` says why nothing is handed out."""

    name: str
    purpose: str
    group_size: int
    tasks: int
    quarantined: int
    epoch: int
    groups_open: int
    groups_ready: int
    leases: int
    assignments: int
    rollouts: int
    trained: int
    dropped: Mapping[str, int]
    mean_reward: float
    mean_tokens: float
    mean_duration_s: float
    outstanding: int
    outstanding_max: int
    reason: str = ""


def source_of(m: wire.SourceState) -> Source:
    """From the wire."""
    assert m.settings is not None
    return Source(
        name=m.settings.name,
        purpose="eval" if m.settings.purpose == 2 else "train",
        group_size=m.settings.group_size,
        tasks=m.tasks,
        quarantined=m.quarantined,
        epoch=m.epoch,
        groups_open=m.groups_open,
        groups_ready=m.groups_ready,
        leases=m.leases,
        assignments=m.assignments,
        rollouts=m.rollouts,
        trained=m.trained,
        dropped=dict(m.dropped),
        mean_reward=m.mean_reward,
        mean_tokens=m.mean_tokens,
        mean_duration_s=m.mean_duration_ms / 1000,
        outstanding=m.outstanding,
        outstanding_max=m.outstanding_max,
        reason=m.reason,
    )


@dataclass(frozen=True)
class EvalResult:
    """`mean` reward over tasks with its `standard_error`; `pass_at[k]` for k = 1, 2, 4, ... attempts."""

    source: str
    version: Version
    attempts: int
    done: bool
    tasks: int
    rollouts: int
    failed: int
    mean: float
    standard_error: float
    pass_at: Dict[int, float]
    mean_tokens: float

    def __str__(self) -> str:
        state = "" if self.done else ", not done"
        return (
            f"{self.source} at version {self.version}: {self.mean:.3f} +- {self.standard_error:.3f} "
            f"({self.rollouts} attempts at {self.tasks} tasks{state})"
        )


def eval_result_of(m: wire.EvalResult) -> EvalResult:
    """From the wire."""
    return EvalResult(
        source=m.source,
        version=version_of(m.version),
        attempts=m.attempts,
        done=m.done,
        tasks=m.tasks,
        rollouts=m.rollouts,
        failed=m.failed,
        mean=m.mean_reward,
        standard_error=m.standard_error,
        pass_at={2**i: value for i, value in enumerate(m.pass_at)},
        mean_tokens=m.mean_tokens,
    )


class Eval:
    """An evaluation under way. Thread-safe."""

    def __init__(self, connection: Connection, eval_run: int) -> None:
        self._connection, self.id = connection, eval_run

    def result(self) -> EvalResult:
        """As it is now; `done` says whether it is complete."""
        return self._get(0.0)

    def wait(self, timeout: float = 3600.0) -> EvalResult:
        """The complete result; DeadlineExceeded, with how far it is, after `timeout` seconds."""
        deadline = time.monotonic() + timeout
        while True:
            left = deadline - time.monotonic()
            try:
                result = self._get(min(LONG_POLL_S, max(0.0, left)))
            except (_errors.Unavailable, _errors.DeadlineExceeded):
                if time.monotonic() >= deadline:
                    raise
                continue  # the evaluation waits for the daemon, too
            if result.done:
                return result
            if left <= 0:
                raise _errors.DeadlineExceeded(f"not done after {timeout:g} s: {result}")

    def _get(self, wait_s: float) -> EvalResult:
        request = wire.GetEvalRequest(eval_run=self.id, wait_ms=int(wait_s * 1000))
        return eval_result_of(
            self._connection.call(SERVICE + "GetEval", request, wire.EvalResult, timeout=wait_s + 20)
        )


