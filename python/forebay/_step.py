"""A step as one rank sees it. A Step belongs to one thread; see the trainer."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Optional, Sequence, Tuple

import numpy as np

from . import _errors
from ._columns import dtype_name, numpy_dtype
from ._drift import DriftPart, drift_parts, parts_message
from ._fetch import Fetch, requests_of
from ._messages import trainer as wire
from ._messages.types import Column
from ._micro_batch import MicroBatch, Totals, put_messages, totals_of
from ._policy import Version, version_of
from ._wire import clipped

if TYPE_CHECKING:
    from ._trainer import Trainer

SERVICE = "/forebay.v1.TrainerService/"


@dataclass(frozen=True)
class Scalars:
    """A step's rollouts, one entry each, for advantages of one's own."""

    rollout_ids: "np.ndarray[Any, Any]"
    group_ids: "np.ndarray[Any, Any]"
    task_ids: "np.ndarray[Any, Any]"
    rewards: "np.ndarray[Any, Any]"
    tokens: "np.ndarray[Any, Any]"
    loss_tokens: "np.ndarray[Any, Any]"
    versions: "np.ndarray[Any, Any]"


class MiniBatch:
    """One optimizer step within the step: iterate over its micro-batches; divide losses by its totals."""

    def __init__(self, step: "Step", index: int, plan: wire.MiniBatchPlan) -> None:
        self._step, self.index = step, index
        self.micro_batches = plan.micro_batches_per_rank  # of this rank, and of every other
        self.totals = totals_of(plan.totals)

    @property
    def loss_tokens(self) -> int:
        """Of all ranks."""
        return self.totals.loss_tokens

    @property
    def tokens(self) -> int:
        return self.totals.tokens

    @property
    def sequences(self) -> int:
        return self.totals.sequences

    @property
    def rollouts(self) -> int:
        return self.totals.rollouts

    def __len__(self) -> int:
        return self.micro_batches

    def __iter__(self) -> Iterator[MicroBatch]:
        return iter(self._step._take([(self.index, i) for i in range(self.micro_batches)]))

    def __repr__(self) -> str:
        return f"<mini-batch {self.index}: {self.micro_batches} micro-batches a rank, {self.totals}>"


class Step:
    """One global batch for one training version: iterate over this rank's micro-batches.

    It can be iterated again, in whole or by mini-batches; columns that were `put` come along.
    """

    def __init__(
        self, trainer: "Trainer", number: int, plan: wire.OpenStepResponse, waited_for: str
    ) -> None:
        self._trainer, self.number, self._plan = trainer, number, plan
        self.revision = plan.revision
        self.train_version: Version = version_of(plan.train_version)
        self.next_version: Version = version_of(plan.next_version)
        self.totals: Totals = totals_of(plan.totals)
        self.reward_mean = plan.reward_mean
        self.rollouts_by_lag: List[int] = list(plan.rollouts_by_lag)
        self.filler_micro_batches = plan.filler_micro_batches
        self.waited_s = plan.waited_ms / 1000  # from opening to sealing
        self.waited_for = waited_for
        self.plan_hash = plan.plan_hash
        self.state = "open"  # then "committed" or "aborted"
        self.lost = False  # bytes of this plan are lost: see DataLost
        self._mini_batches = [MiniBatch(self, i, m) for i, m in enumerate(plan.mini_batches)]
        self._put: Dict[Tuple[int, int], List[str]] = {}
        self._ahead: Optional[Tuple[List[Tuple[int, int]], Fetch]] = None

    def mini_batches(self) -> Sequence[MiniBatch]:
        """In the order of the optimizer steps."""
        return list(self._mini_batches)

    def __iter__(self) -> Iterator[MicroBatch]:
        return iter(self._take(self._places()))

    def __len__(self) -> int:
        """Micro-batches of this rank."""
        return sum(map(len, self._mini_batches))

    def put(self, mb: MicroBatch, **columns: Any) -> None:
        """Writes per-token results of a micro-batch back, for the life of the step: [T] or [T, ...] each.

        They are columns of that micro-batch from now on: `step.put(mb, old_logprobs=...)`. At most 32 of them, each of
        at most 16,711,680 bytes (16 MiB less 64 KiB); InvalidRequest names the one that has more, and none is written.
        """
        trainer = self._trainer
        messages = put_messages(mb, columns, trainer.generation, self.number, trainer.mesh.dp_rank)
        for message in messages:
            with self._noting_loss():
                trainer._call("PutColumns", message, wire.PutColumnsResponse)
            self._note_put(mb, message)

    def _note_put(self, mb: MicroBatch, message: wire.PutColumnsRequest) -> None:
        names = self._put.setdefault((mb.mini_batch, mb.index), [])
        names += [column.name for column in message.columns if column.name not in names]
        rows = len(mb.columns["tokens"]) if "tokens" in mb.columns else mb.num_tokens
        for column in message.columns:
            mb.columns[column.name] = _padded(message, column, rows)  # for this pass; later ones fetch it
            mb.dtypes[column.name] = dtype_name(column.dtype)

    def report(self, mb: MicroBatch, logprobs: Any, reference: Optional[Any] = None) -> bool:
        """Reports how far the trainer is from the engines that sampled the micro-batch: see `buffer-ctl kl`.

        logprobs [T]: the trainer's log-probabilities of the tokens; rows of other tokens than the loss mask's are not
        looked at. With mask_alignment "predicting" row t is of token t + 1. reference [T]: the reference policy's. Call
        it before the commit; of peers that have the same micro-batch the first one counts. Returns whether this counted.
        """
        predicting = self._trainer._fetch_options.get("mask_alignment") == wire.MASK_ALIGNMENT_PREDICTING
        engine, against = drift_parts(mb, logprobs, reference, predicting, self.train_version.number)
        return self.report_parts(mb, engine, against)

    def report_parts(
        self, mb: MicroBatch, engine: Sequence[DriftPart], reference: Sequence[DriftPart] = ()
    ) -> bool:
        """As `report`, with sums that the trainer has computed itself; at most 65,536 parts of each kind."""
        if not engine and not reference:
            return False
        names: Dict[str, int] = {}
        request = wire.ReportSequencesRequest(
            generation=self._trainer.generation,
            step=self.number,
            revision=mb.revision,
            dp_rank=self._trainer.mesh.dp_rank,
            mini_batch=mb.mini_batch,
            micro_batch=mb.index,
            engine=parts_message(engine, names, True),
            reference=parts_message(reference, names, False),
        )
        request.engine_names = list(names)
        with self._noting_loss():
            response = self._trainer._call("ReportSequences", request, wire.ReportSequencesResponse)
        return not response.already_counted

    def commit(self) -> Version:
        """Makes the step consumed, after the optimizer; exactly once, whichever rank comes first."""
        request = wire.CommitStepRequest(
            generation=self._trainer.generation, step=self.number, revision=self.revision
        )
        with self._noting_loss():
            response = self._trainer._call("CommitStep", request, wire.CommitStepResponse)
        self.state = "committed"
        self.next_version = version_of(response.next_version or self._plan.next_version)
        self._trainer._committed(self)
        self._drop()
        return self.next_version

    def abort(self, reason: str = "") -> None:
        """Returns the step's groups; they are served again."""
        if self.state != "open":
            return
        self.state = "aborted"
        self._drop()
        request = wire.AbortStepRequest(
            generation=self._trainer.generation, step=self.number, reason=clipped(reason, 1024)
        )
        self._trainer._call("AbortStep", request, wire.AbortStepResponse)

    def _taken_back(self) -> None:
        self.state = "aborted"
        self._drop()

    def __str__(self) -> str:
        t = self.totals
        lags = ", ".join(f"{count} at lag {lag}" for lag, count in enumerate(self.rollouts_by_lag) if count)
        fillers = f", {self.filler_micro_batches} of them fillers" if self.filler_micro_batches else ""
        why = f" ({self.waited_for})" if self.waited_for else ""
        return (
            f"step {self.number}: trains version {self.train_version}, makes {self.next_version}; "
            f"{t.groups} groups, {t.rollouts} rollouts ({lags or 'no lag'}), mean reward {self.reward_mean:.3f}; "
            f"{t.tokens:,} tokens, {t.loss_tokens:,} in the loss; "
            f"{len(self._mini_batches)} mini-batches, {len(self)} micro-batches a rank{fillers}; "
            f"waited {self.waited_s:.1f} s{why}"
        )

    __repr__ = __str__

    # ---- fetching

    def _places(self) -> List[Tuple[int, int]]:
        return [(m.index, i) for m in self._mini_batches for i in range(m.micro_batches)]

    def _begin_fetch(self) -> None:
        """Before anybody asks: the first pass nearly always takes all micro-batches in order."""
        places = self._places()
        if places:
            self._ahead = (places, self._fetch(places))

    def _fetch(self, places: List[Tuple[int, int]]) -> Fetch:
        trainer = self._trainer
        columns = [[*trainer.columns, *self._put.get(place, ())] for place in places]
        requests = requests_of(trainer._template(self), places, columns, trainer._slices)
        return trainer._fetcher.fetch(requests, trainer.fetch_timeout)

    def _take(self, places: List[Tuple[int, int]]) -> Iterator[MicroBatch]:
        """Micro-batches in order; what is already being fetched in this order is used."""
        if self.state != "open":
            raise _errors.Conflict(f"step {self.number} is {self.state}")
        if self._ahead is not None:
            coming, fetch = self._ahead
            if not fetch.closed and coming[: len(places)] == places and not any(place in self._put for place in places):
                return self._take_ahead(len(places))
            self._drop()
        rest = self._rest_after(places)
        if rest:
            # A pass by mini-batches: go on with those that follow.
            self._ahead = (places + rest, self._fetch(places + rest))
            return self._take_ahead(len(places))
        return self._noted(self._fetch(places))

    def _noted(self, fetch: Fetch) -> Iterator[MicroBatch]:
        with self._noting_loss():
            yield from fetch

    @contextlib.contextmanager
    def _noting_loss(self) -> Iterator[None]:
        try:
            yield
        except _errors.DataLost:
            self.lost = True
            raise

    def _rest_after(self, places: List[Tuple[int, int]]) -> List[Tuple[int, int]]:
        everything = self._places()
        if not places or places == everything:
            return []
        return everything[everything.index(places[-1]) + 1 :]

    def _take_ahead(self, count: int) -> Iterator[MicroBatch]:
        for _ in range(count):
            if self._ahead is None:
                raise _errors.Conflict(f"step {self.number}: another pass began, or the step is {self.state}")
            coming, fetch = self._ahead
            with self._noting_loss():
                mb = fetch.next()
            coming.pop(0)
            if not coming:
                self._drop()
            yield mb

    def _drop(self) -> None:
        if self._ahead is not None:
            self._ahead[1].close()
            self._ahead = None


def _padded(message: wire.PutColumnsRequest, column: Column, rows: int) -> "np.ndarray[Any, Any]":
    """The rows of one column of what was put, with zeros for the padding."""
    begin = 0
    for other in message.columns:
        if other is column:
            break
        begin += other.bytes
    data = np.frombuffer(message.data, np.uint8, column.bytes, begin)
    values = data.view(numpy_dtype(column.dtype)).reshape(-1, *column.inner)
    out = np.zeros((rows, *column.inner), values.dtype)
    out[: len(values)] = values
    return out
