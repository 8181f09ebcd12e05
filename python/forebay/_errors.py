"""What can go wrong, as exceptions. All derive from ForebayError; none shows gRPC."""

from __future__ import annotations

from typing import Dict, Optional, Type

import grpc


class ForebayError(Exception):
    """Base of everything that this package raises for reasons outside of it."""


class Unavailable(ForebayError):
    """The daemon cannot be reached, or is going down. Calls are retried before this is raised."""


class DeadlineExceeded(ForebayError, TimeoutError):
    """The call's time is over."""


class Cancelled(ForebayError):
    """The call was cancelled by this process."""


class Overloaded(ForebayError):
    """A limit of the daemon is reached; the message names it.

    If the daemon said when to ask again, the call was repeated until its time was over; else asking again is useless.
    """


class InvalidRequest(ForebayError, ValueError):
    """Something in the request is wrong; the message names the field, the value and the limit."""


class InvalidRollout(InvalidRequest):
    """A rollout is wrong; `field` says where, as a path: "columns[2].bytes"."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field} {message}")
        self.field = field
        self.reason = message


class NotFound(ForebayError, LookupError):
    """No such source, step, evaluation or task."""


class Conflict(ForebayError):
    """The state does not allow it: a commit out of order, a step with another spec, a task with other content."""


class LeaseLost(ForebayError):
    """The attempt no longer belongs to this actor; its result is not used."""


class Stale(ForebayError):
    """The rollout's versions are over the lag limit, or of an abandoned branch."""


class FencedTrainer(ForebayError):
    """A newer start of the trainer has taken over; this process must stop training."""


class DataLost(ForebayError):
    """Bytes of a step could not be read back; the message names the rollout. The daemon drops it and plans the step
    without it: give up the gradients of the step, and go on with the loop over `steps()`, which gives it again."""


class NotAllowed(ForebayError, PermissionError):
    """The token is missing, unknown, or of a role that may not do this."""


class InternalError(ForebayError):
    """The daemon failed, or answered what this version of the package does not understand."""


_BY_CODE: Dict[grpc.StatusCode, Type[ForebayError]] = {
    grpc.StatusCode.CANCELLED: Cancelled,
    grpc.StatusCode.INVALID_ARGUMENT: InvalidRequest,
    grpc.StatusCode.OUT_OF_RANGE: InvalidRequest,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceeded,
    grpc.StatusCode.NOT_FOUND: NotFound,
    grpc.StatusCode.ALREADY_EXISTS: Conflict,
    grpc.StatusCode.FAILED_PRECONDITION: Conflict,
    grpc.StatusCode.PERMISSION_DENIED: NotAllowed,
    grpc.StatusCode.UNAUTHENTICATED: NotAllowed,
    grpc.StatusCode.RESOURCE_EXHAUSTED: Overloaded,
    grpc.StatusCode.UNAVAILABLE: Unavailable,
    grpc.StatusCode.DATA_LOSS: DataLost,
}
_BY_NUMBER = {code.value[0]: code for code in grpc.StatusCode}


def from_code(code: Optional[grpc.StatusCode], details: str, method: str) -> ForebayError:
    """The exception for a status that a call ended with."""
    what = f"{details or 'no details'} ({method.rpartition('/')[2]})"
    if code is grpc.StatusCode.ABORTED:
        return FencedTrainer(what) if "TrainerService" in method else Conflict(what)
    return _BY_CODE.get(code, InternalError)(what) if code else InternalError(what)


def from_number(code: int, details: str, method: str) -> ForebayError:
    """The exception for a status code that came inside an answer."""
    return from_code(_BY_NUMBER.get(code), details, method)


def from_rpc(error: grpc.RpcError, method: str) -> ForebayError:
    """The exception for what grpcio raised."""
    code = error.code() if hasattr(error, "code") else None
    details = error.details() if hasattr(error, "details") else str(error)
    return from_code(code, details or "", method)
