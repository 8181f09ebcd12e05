"""Forebay's client for Python: actors and trainers of reinforcement-learning runs.

    import forebay as fb
    run = fb.connect("127.0.0.1:7400")      # or fb.start(): a private daemon
    run.load("math", dataset, group_size=16)

Actors iterate over `run.actor(...)`, trainers over the steps of `run.trainer(...)`. `run.sync` holds
every call as one that blocks, `run.aio` as one to await; see Run.
"""

__version__ = "0.1.0"

from ._actor import Actor, Assignment, CancelledEvent, Partial, SyncActor, SyncAssignment
from ._calls import Loaded
from ._columns import Column, Ragged
from ._connection import TLS
from ._daemon import Daemon
from ._drift import DriftPart
from ._errors import (
    Cancelled,
    Conflict,
    DataLost,
    DeadlineExceeded,
    FencedTrainer,
    ForebayError,
    InternalError,
    InvalidRequest,
    InvalidRollout,
    LeaseLost,
    NotAllowed,
    NotFound,
    Overloaded,
    Stale,
    Unavailable,
)
from ._micro_batch import MicroBatch, Totals
from ._policy import Policy, Version
from ._push import PushResult
from ._rollout import Rollout, Sequence, Turn, VersionRun
from ._run import Run, connect, start
from ._slice import Context, Slice
from ._status import Eval, EvalResult, Source, Status
from ._step import MiniBatch, Scalars, Step
from ._trainer import Mesh, Trainer
from ._usage import Usage
from ._waiting import Promise

__all__ = [name for name in dir() if not name.startswith("_")]
