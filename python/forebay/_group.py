"""Pushes finished groups that have no assignments. Thread-safe."""

from __future__ import annotations

import time
from typing import Any, Dict, List, Optional, Sequence

import grpc

from . import _errors
from ._connection import MESSAGE_BYTES_MAX, Connection, current_scope, random_id, retry_after_s
from ._messages import actor as wire
from ._push import FRAME_BYTES, GROUP_METHOD, PushResult, broke, error_of, frame_bytes, slices
from ._rollout import Rollout, header_bytes
from ._usage import meter
from ._wire import varint

ROLLOUTS_MAX = 4096
# The group and its rollouts' headers: all of them go in the first message, beside FRAME_BYTES of payload.
HEADER_BYTES_MAX = MESSAGE_BYTES_MAX - FRAME_BYTES - 1024


def push_group(
    connection: Connection,
    session: int,
    group: wire.GroupHeader,
    rollouts: Sequence[Rollout],
    timeout: float,
) -> List[PushResult]:
    """Pushes one group, whole or not at all; the results are in the order of the rollouts.

    A header that was pushed before has its request id, and is told as a duplicate. Raises InvalidRequest for a group
    of more than ROLLOUTS_MAX rollouts, or of more than HEADER_BYTES_MAX bytes beside the payload.
    """
    if len(rollouts) > ROLLOUTS_MAX:
        raise _errors.InvalidRequest(f"rollouts: has {len(rollouts)} entries, at most {ROLLOUTS_MAX} in a group")
    group.request_id = group.request_id or random_id()
    body = group.encode()
    first = b"\x2a" + varint(len(body)) + body
    parts: List[Any] = []
    for rollout in rollouts:
        header, own = rollout._encode()
        data = header_bytes(header)
        first += b"\x1a" + varint(len(data)) + data
        parts += own
    if len(first) > HEADER_BYTES_MAX:
        raise _errors.InvalidRequest(
            f"group: its task and its rollouts' headers have {len(first)} bytes, together at most {HEADER_BYTES_MAX}"
        )
    head = b"\x09" + session.to_bytes(8, "little")
    frames = []
    for number, (pieces, size) in enumerate(slices(parts, FRAME_BYTES), 1):
        frames.append((head + b"\x10" + varint(number) + (first if number == 1 else b""), pieces, size))
    return _push(connection, frames, len(rollouts), timeout)


def _push(connection: Connection, frames: List[Any], count: int, timeout: float) -> List[PushResult]:
    """Over a stream of its own. The group's request id makes a repetition harmless."""
    scope = current_scope()
    deadline = time.monotonic() + timeout
    while True:
        call = connection.stream(
            GROUP_METHOD,
            (frame_bytes(*frame) for frame in frames),
            "push",
            timeout=max(0.001, deadline - time.monotonic()),
        )
        try:
            refused: Dict[int, wire.PushOutcome] = {}
            with scope.holding(call):
                for reply in call:
                    outcomes = wire.PushReply.decode(reply).outcomes
                    refused.update((outcome.index, outcome) for outcome in outcomes)
            break
        except grpc.RpcError as error:
            failure = _errors.from_rpc(error, GROUP_METHOD)
            pause = max(0.2, retry_after_s(error))
            passing = broke(error) and not scope.cancelled
            if not passing or time.monotonic() + pause > deadline:
                raise failure from None
            if connection.pause(pause, scope, call.revision):
                raise failure from None
    wrong = refusal_of(refused)
    if wrong is not None:
        raise wrong
    meter().pushed(sum(size for _, _, size in frames))
    return [
        PushResult(refused[i].result) if i in refused else PushResult.ACCEPTED for i in range(count)
    ]


def refusal_of(outcomes: Dict[int, wire.PushOutcome]) -> Optional[Exception]:
    """The exception for a group that was refused, None if it was taken.

    A rollout that is wrong refuses the others with it, whose outcomes name the group and no field of theirs. One that
    names a field of its own says what is wrong, and is named before it, unless all say the same: then it is the group's.
    """
    refused = [(i, outcome) for i, outcome in sorted(outcomes.items()) if error_of(outcome) is not None]
    for index, outcome in refused:
        if outcome.field in ("", "group", "rollouts"):
            continue
        if any(other.field != outcome.field or other.message != outcome.message for _, other in refused):
            outcome.field = f"rollouts[{index}].{outcome.field}"
            if outcome.result != wire.PUSH_RESULT_INVALID:
                outcome.message = f"{outcome.field}: {outcome.message}"
        return error_of(outcome)
    return error_of(refused[0][1]) if refused else None
