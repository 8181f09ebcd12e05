"""The trainer's side: attach, steps, publishing. A Trainer belongs to one thread."""

from __future__ import annotations

import dataclasses
import logging
import math
import os
import socket
import threading
import time
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Type, TypeVar, Union

import numpy as np

from . import _errors
from ._connection import Backoff, Connection, Scope, current_scope, random_id, scoped
from ._fetch import Fetcher
from ._messages import trainer as wire
from ._messages.actor import (
    VERSION_PHASE_PENDING,
    VERSION_PHASE_PUBLISHED,
    PolicyAnnouncement,
)
from ._policy import Version, version_of
from ._slice import Columns, Context, split_columns
from ._step import SERVICE, Scalars, Step
from ._wire import Message, clipped

log = logging.getLogger("forebay")
R = TypeVar("R", bound=Message)
DEFAULT_COLUMNS = ("tokens", "loss_mask", "logprobs")
PREFETCH_BYTES = 512 << 20
FRAME_BYTES = 4 << 20
LONG_POLL_S = 10.0
STEP_TIMEOUT_S = 3600.0
FETCH_TIMEOUT_S = 300.0
COMPLAIN_EVERY_S = 30.0
Advantages = Callable[[Scalars], Any]
# The daemon did not answer within a call's time; a wait that is longer goes on.
_AWAY = (_errors.Unavailable, _errors.Overloaded, _errors.DeadlineExceeded)


@dataclass(frozen=True)
class Mesh:
    """How the ranks are laid out, and which one this is.

    Only dp decides the packing; the tp, pp and cp peers of a rank fetch the same micro-batches, or parts of them (Slice,
    Context), each with a `peer` number of its own, from 0 to tp x pp x cp - 1.
    """

    dp: int = 1
    dp_rank: int = 0
    tp: int = 1
    pp: int = 1
    cp: int = 1
    peer: int = 0
    micro_batches_multiple_of: int = 1

    def message(self) -> wire.Mesh:
        return wire.Mesh(
            dp=self.dp,
            tp=self.tp,
            pp=self.pp,
            cp=self.cp,
            micro_batches_multiple_of=self.micro_batches_multiple_of,
        )


class Trainer:
    """`with run.trainer(...) as t:`; leaving it with an exception aborts the open steps."""

    def __init__(
        self,
        connection: Connection,
        *,
        mesh: Mesh,
        spec: wire.StepSpec,
        columns: Columns,
        name: str,
        policy: str,
        resume: Optional[int],
        replan: bool,
        ahead: int,
        advantages: Optional[Advantages],
        fetch: Dict[str, Any],
        context: Optional[Context] = None,
        prefetch_bytes: int,
        step_timeout: float,
        fetch_timeout: float,
    ) -> None:
        self._connection, self.mesh, self._spec = connection, mesh, spec
        self.columns, self._slices = split_columns(columns)
        for what, seconds in (("step_timeout", step_timeout), ("fetch_timeout", fetch_timeout)):
            if not seconds >= 0:  # written so that NaN fails
                raise ValueError(f"{what} is {seconds}, must be a number of seconds, at least 0")
        self._policy, self._resume, self._replan, self._ahead = policy, resume, replan, ahead
        self._advantages = advantages
        self._fetch_options = {**fetch, "context": None if context is None else context.message()}
        self.step_timeout, self.fetch_timeout = step_timeout, fetch_timeout
        self._name = name or f"{socket.gethostname()}-{os.getpid()}"
        self._process = random_id()
        self._scope = Scope()
        self._fetcher = Fetcher(connection, prefetch_bytes, FRAME_BYTES)
        self._open: Dict[int, Step] = {}  # sealed, neither committed nor aborted
        self._opening: Dict[int, "_Opening"] = {}
        self._last_committed = 0
        self._rewinds = 0
        self.generation = 0
        self.next_step = 0
        self.train_version = Version(0)

    def __enter__(self) -> "Trainer":
        self._attach(self._resume)
        return self

    def _attach(self, resume: Optional[int]) -> None:
        request = wire.AttachTrainerRequest(
            trainer=self._name,
            process=self._process,
            mesh=self.mesh.message(),
            dp_rank=self.mesh.dp_rank,
            peer=self.mesh.peer,
            policy=self._policy,
            resume_step=resume,
        )
        response = self._call("AttachTrainer", request, wire.AttachTrainerResponse)
        self.generation = response.generation
        self.next_step = response.next_step
        self.train_version = version_of(response.train_version)
        self._last_committed = response.next_step - 1

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        reason = f"{kind.__name__}: {error}" if kind is not None else "the trainer left"
        self._scope.cancel()
        try:
            for step in list(self._open.values()):
                step.abort(reason)
            for opening in self._opening.values():
                opening.abandon(reason)
        except _errors.ForebayError as failure:
            log.warning("open steps could not be aborted: %s", failure)
        finally:
            self._fetcher.close()

    def steps(self, count: Optional[int] = None) -> Iterator[Step]:
        """Steps from the next one on, `count` of them or without end.

        Each comes sealed, and its micro-batches are fetched ahead. After a `rewind` within the loop it goes on with
        the step after the one that was gone back to. Raises DeadlineExceeded with the
        reason when a step could not be filled within `step_timeout` seconds. A step of which bytes
        were lost (DataLost) comes again, planned without them, if the loop goes on after it.
        """
        if not self.generation:
            raise RuntimeError("use the trainer in a with statement: with run.trainer(...) as t:")
        number = self.next_step
        end = None if count is None else number + count
        while end is None or number < end:
            step = self._take(number)
            for following in range(number + 1, number + 1 + self._ahead):
                if following not in self._opening and (end is None or following < end):
                    self._opening[following] = _Opening(self, following)
            rewinds = self._rewinds
            yield step
            if rewinds != self._rewinds:
                number = self.next_step
            elif not step.lost:
                number += 1

    def announce(self, version: Union[int, Version], where: str = "") -> None:
        """Says that weights are coming, so that actors can cut work that would be too stale."""
        self._publish(version, VERSION_PHASE_PENDING, where, "", None)

    def publish(
        self,
        version: Union[int, Version],
        where: str = "",
        *,
        checksum: str = "",
        base: Union[None, int, Version] = None,
    ) -> None:
        """Announces weights that engines can load from `where`; `base` is what a delta applies to."""
        self._publish(version, VERSION_PHASE_PUBLISHED, where, checksum, base)

    def checkpoint(self, step: Optional[int] = None) -> int:
        """Says that the trainer's own checkpoint covers all steps up to `step` (the last committed one).

        Their rollouts may go, and no rewind goes back before it. Returns the newest step that a checkpoint covers.
        """
        request = wire.CheckpointStepRequest(
            generation=self.generation, step=self._last_committed if step is None else step
        )
        return self._call("CheckpointStep", request, wire.CheckpointStepResponse).checkpoint

    def rewind(self, step: int, replay: bool = False, reason: str = "") -> Version:
        """Goes back to `step`: all later ones are taken back, and a new branch of versions begins.

        Load the weights of that step, and publish them as the version that this returns: until then actors get no
        work. Call it on every rank; the first one does it, the others join. With `replay` the steps are served again
        as they were, else their rollouts are dropped and others generated. Raises Conflict for a step below the last
        checkpoint, and for a replay of what is not kept any more; the message names the limit.
        """
        request = wire.RewindRequest(
            request_id=random_id(),
            generation=self.generation,
            step=step,
            mode=wire.REWIND_MODE_REPLAY if replay else wire.REWIND_MODE_FRESH,
            reason=clipped(reason, 1024),
        )
        branch = self.train_version.branch
        fenced: Optional[_errors.FencedTrainer] = None
        try:
            self._call("Rewind", request, wire.RewindResponse)
        except _errors.FencedTrainer as error:
            fenced = error  # perhaps for another rank did it, which ended the generation
        self._attach(None)
        if fenced is not None and not (self.train_version.branch > branch and self.next_step == step + 1):
            raise fenced
        for open_step in self._open.values():
            open_step._taken_back()
        self._open, self._opening = {}, {}  # the daemon has aborted them
        self._rewinds += 1
        return self.train_version

    def _publish(
        self,
        version: Union[int, Version],
        phase: int,
        where: str,
        checksum: str,
        base: Union[None, int, Version],
    ) -> None:
        announcement = PolicyAnnouncement(
            version=self._on_branch(version).message(),
            phase=phase,
            base=None if base is None else self._on_branch(base).message(),
            where=str(where),
            checksum=checksum,
            step=self._last_committed,
        )
        request = wire.PublishVersionRequest(generation=self.generation, announcement=announcement)
        self._call("PublishVersion", request, wire.PublishVersionResponse)

    def _on_branch(self, version: Union[int, Version]) -> Version:
        if isinstance(version, Version):
            return version
        return dataclasses.replace(self.train_version, number=int(version))

    def __repr__(self) -> str:
        return f"<trainer {self._name}, dp rank {self.mesh.dp_rank} of {self.mesh.dp}>"

    # ---- for steps

    def _call(self, method: str, request: Message, response: Type[R], **options: Any) -> R:
        return self._connection.call(SERVICE + method, request, response, **options)

    def _template(self, step: Step) -> Dict[str, Any]:
        return {
            **self._fetch_options,
            "generation": self.generation,
            "step": step.number,
            "revision": step.revision,
            "dp_rank": self.mesh.dp_rank,
        }

    def _committed(self, step: Step) -> None:
        self._open.pop(step.number, None)
        self._last_committed = max(self._last_committed, step.number)
        self.next_step = max(self.next_step, step.number + 1)
        self.train_version = step.next_version

    def _take(self, number: int) -> Step:
        opening = self._opening.pop(number, None)
        step = opening.wait() if opening is not None else self._open_step(number, None)
        self._open = {number: step}  # the one before was committed, here or by another rank
        step._begin_fetch()
        return step

    def _open_step(self, number: int, scope: Optional[Scope]) -> Step:
        """Opens a step and waits until it is sealed."""
        scope = scope or current_scope(self._scope)
        begin = time.monotonic()
        complained, replan, waited_for = begin, self._replan, ""
        backoff, said_away = Backoff(), -math.inf
        while True:
            if self._scope.cancelled:
                raise _errors.Cancelled(f"the trainer was left while it waited for step {number}")
            left = max(0.0, begin + self.step_timeout - time.monotonic())
            request = wire.OpenStepRequest(
                generation=self.generation,
                step=number,
                spec=self._spec,
                replan=replan,
                wait_ms=int(min(LONG_POLL_S, left) * 1000),
            )
            try:
                plan = self._call(
                    "OpenStep",
                    request,
                    wire.OpenStepResponse,
                    timeout=min(LONG_POLL_S, left) + 20,
                    scope=scope,
                )
            except _AWAY as error:
                now = time.monotonic()
                if now >= begin + self.step_timeout:
                    raise
                if now > said_away + COMPLAIN_EVERY_S:
                    log.warning("step %d waits for the daemon: %s", number, error)
                    said_away = now
                scope.wait(backoff.next_s())  # it may have refused at once
                continue
            replan = False
            backoff.reset()
            if plan.state in (wire.STEP_STATE_SEALED, wire.STEP_STATE_COMMITTED):
                self._replan = False
                return Step(self, number, plan, waited_for)
            waited_for = plan.waiting or waited_for
            if plan.state == wire.STEP_STATE_RESERVED:
                self._set_advantages(number)
            now = time.monotonic()
            if now >= begin + self.step_timeout:
                raise _errors.DeadlineExceeded(
                    f"step {number} is not there after {now - begin:.0f} s: {waited_for or 'no reason given'}"
                )
            if now > complained + COMPLAIN_EVERY_S:
                log.warning("step %d has waited %.0f s: %s", number, now - begin, waited_for)
                complained = now

    def _set_advantages(self, number: int) -> None:
        if self.mesh.dp_rank or self.mesh.peer:
            self._scope.wait(0.05)  # one rank does it
            return
        if self._advantages is None:
            raise RuntimeError("the step waits for advantages: run.trainer(advantages=function)")
        s = self._call(
            "FetchScalars",
            wire.FetchScalarsRequest(generation=self.generation, step=number, wait_ms=10_000),
            wire.FetchScalarsResponse,
        )
        scalars = Scalars(
            np.array(s.rollout_ids, np.uint64),
            np.array(s.group_ids, np.uint64),
            np.array(s.task_ids, np.uint64),
            np.array(s.rewards, np.float32),
            np.array(s.tokens, np.int64),
            np.array(s.loss_tokens, np.int64),
            np.array(s.versions, np.int64),
        )
        values = np.asarray(self._advantages(scalars), np.float32)
        if values.shape != scalars.rewards.shape or not np.isfinite(values).all():
            raise ValueError(f"advantages must be {len(scalars.rewards)} finite numbers, one a rollout")
        self._call(
            "PutAdvantages",
            wire.PutAdvantagesRequest(
                generation=self.generation,
                step=number,
                revision=s.revision,
                advantages=values.tolist(),
            ),
            wire.PutAdvantagesResponse,
        )


class _Opening:
    """A step that is opened ahead, on a thread of its own."""

    def __init__(self, trainer: Trainer, number: int) -> None:
        self._trainer, self._number = trainer, number
        self._result: Union[None, Step, BaseException] = None
        self._thread = threading.Thread(target=self._run, name=f"forebay-open-{number}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            with scoped(self._trainer._scope):
                self._result = self._trainer._open_step(self._number, self._trainer._scope)
        except BaseException as error:  # raised where the step is taken
            self._result = error

    def wait(self) -> Step:
        self._thread.join()
        if isinstance(self._result, Step):
            return self._result
        assert self._result is not None
        raise self._result

    def abandon(self, reason: str) -> None:
        """Gives back what was opened; the trainer's scope is cancelled by now."""
        self._thread.join(5.0)
        request = wire.AbortStepRequest(
            generation=self._trainer.generation, step=self._number, reason=clipped(reason, 1024)
        )
        try:
            self._trainer._call("AbortStep", request, wire.AbortStepResponse)
        except (_errors.NotFound, _errors.Conflict, _errors.InvalidRequest):
            pass  # it was never opened


def names_of(names: Union[str, Sequence[str]]) -> List[str]:
    """A list of names; one alone stands for itself, not for its letters."""
    return [names] if isinstance(names, str) else list(names)


def cost_points(table: Any) -> List[wire.CostPoint]:
    """Of pairs, or a dict, of tokens and cost; by tokens."""
    pairs = table.items() if isinstance(table, Mapping) else table
    try:
        return [wire.CostPoint(tokens=int(tokens), cost=float(cost)) for tokens, cost in sorted(pairs)]
    except (TypeError, ValueError) as error:
        raise ValueError(f"cost_table is {table!r}, must hold pairs of tokens and cost: {error}") from None


def step_spec(mesh: Mesh, sources: Sequence[str], advantages: bool, **spec: Any) -> wire.StepSpec:
    """The step that a trainer asks for; unknown names are refused."""
    known = {field.name for field in wire.StepSpec.FIELDS}
    for name in spec:
        if name not in known:
            raise TypeError(f"{name!r} is no setting of a step; known: {', '.join(sorted(known))}")
    if spec.get("cost_table") is not None:
        spec["cost_table"] = cost_points(spec["cost_table"])
    return wire.StepSpec(
        mesh=mesh.message(),
        sources=names_of(sources),
        custom_advantages=advantages,
        **{name: value for name, value in spec.items() if value is not None},
    )
