"""All calls of a run, as two twins: SyncRun blocks, AsyncRun awaits. Thread-safe."""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import time
import weakref
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Set, Union

from . import _sources, _status
from ._actor import Actor, SyncActor, _BaseActor, _BaseAssignment, save_and_close
from ._aio import AsyncEval, AsyncTrainer, in_thread
from ._connection import Connection, random_id
from ._group import push_group
from ._leases import LeaseKeeper
from ._messages import actor as actor_wire
from ._messages import admin as admin_wire
from ._policy import Policy, Version, Watch, as_version
from ._push import PushResult
from ._rollout import Rollout, check_rewards
from ._slice import Columns, Context
from ._trainer import (
    DEFAULT_COLUMNS,
    FETCH_TIMEOUT_S,
    PREFETCH_BYTES,
    STEP_TIMEOUT_S,
    Advantages,
    Mesh,
    Trainer,
    step_spec,
)
from ._usage import Usage, meter
from ._waiting import Promise

ADMIN = "/forebay.v1.AdminService/"
ALIGNMENTS = {"token": 1, "predicting": 2}


@dataclass(frozen=True)
class Loaded:
    """Tasks that `load` added, and those that were there already."""

    added: int
    known: int


class _Process:
    """What a run has in one process."""

    def __init__(self) -> None:
        self.keepers: List[LeaseKeeper] = []
        self.background: Optional[LeaseKeeper] = None
        self.actors: "weakref.WeakSet[_BaseActor[Any]]" = weakref.WeakSet()
        self.watches: "weakref.WeakSet[Watch]" = weakref.WeakSet()
        self.tasks: Set["asyncio.Task[Any]"] = set()


class SyncRun:
    """All calls of a run, blocking: `run.sync`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._processes: Dict[int, _Process] = {}

    @property
    def _process(self) -> _Process:
        pid = os.getpid()
        if pid not in self._processes:
            self._processes = {pid: _Process()}  # a forked child begins anew
        return self._processes[pid]

    # ---- tasks and sources

    def load(
        self,
        source: str,
        dataset: _sources.Dataset,
        *,
        id_field: str = "id",
        task_weight: Union[None, str, Callable[[Any], float]] = None,
        **settings: Any,
    ) -> Loaded:
        """Creates or changes a source, and adds tasks to it.

        `dataset`: an iterable of dicts (or any JSON), a Hugging Face data set, or a path (.jsonl,
        .json, .parquet). A task's id is its `id_field` (at most 256 bytes), or a hash of its content; the same tasks
        again add nothing. A task is at most 1 MiB of JSON; InvalidRequest names one that is larger. `task_weight`: a field or a function, for weighted draws. Settings, as for
        `configure`: group_size=16, max_lag=2, sampling={...}, purpose="eval", ...
        """
        batches = _sources.batches(_sources.tasks(dataset, id_field, task_weight))
        first = next(batches, None)  # tasks that cannot be read leave no empty source behind
        self.configure(source, **settings)
        added = known = 0
        for batch in itertools.chain([] if first is None else [first], batches):
            response = self._connection.call(
                ADMIN + "AddTasks",
                admin_wire.AddTasksRequest(source=source, tasks=batch),
                admin_wire.AddTasksResponse,
            )
            added, known = added + response.added, known + response.known
        return Loaded(added, known)

    def configure(self, source: str, **settings: Any) -> None:
        """Creates a source, or changes those settings of it that are named; ValueError names one that is wrong."""
        held = self._settings_of(source)
        if held is not None and not settings:
            return
        request = admin_wire.PutSourceRequest(settings=_sources.settings(source, settings, held))
        self._connection.call(ADMIN + "PutSource", request, admin_wire.PutSourceResponse)

    def _settings_of(self, source: str) -> Any:
        for state in self._list_sources():
            if state.settings is not None and state.settings.name == source:
                return state.settings
        return None

    def _list_sources(self) -> Sequence[admin_wire.SourceState]:
        return self._connection.call(
            ADMIN + "ListSources", admin_wire.ListSourcesRequest(), admin_wire.ListSourcesResponse
        ).sources

    def sources(self) -> Dict[str, _status.Source]:
        """All sources by name."""
        found = [_status.source_of(state) for state in self._list_sources()]
        return {source.name: source for source in found}

    def status(self) -> _status.Status:
        """A verdict with reasons, and the run's main figures."""
        return _status.status_of(
            self._connection.call(
                ADMIN + "GetStatus", admin_wire.GetStatusRequest(), admin_wire.GetStatusResponse
            )
        )

    def usage(self) -> Usage:
        """What this process costs; the daemon is told with each renewal and adoption."""
        return meter().usage()

    # ---- actors

    def _keeper(self, name: str, **options: Any) -> LeaseKeeper:
        keeper = LeaseKeeper(self._connection, name or f"{socket.gethostname()}-{os.getpid()}", **options)
        self._process.keepers.append(keeper)
        return keeper

    def _any_keeper(self) -> LeaseKeeper:
        """For calls that belong to no particular actor."""
        process = self._process
        process.keepers = [keeper for keeper in process.keepers if not keeper.closed]
        if process.keepers:
            return process.keepers[0]
        if process.background is None or process.background.closed:
            process.background = LeaseKeeper(
                self._connection,
                f"{socket.gethostname()}-{os.getpid()}",
                sources=(),
                slots=0,
                engine="",
                site="",
                loads_any_version=False,
            )
        return process.background

    def _actor(
        self,
        kind: Any,
        name: str,
        sources: Sequence[str],
        slots: int,
        engine: str,
        site: str,
        loads_any_version: bool,
        push_timeout: float,
        save_partials: Optional[Callable[[Any], Optional[Rollout]]],
        handle_sigterm: bool,
    ) -> Any:
        if not 1 <= slots <= 65_536:
            raise ValueError(f"slots is {slots}, must be 1 to 65536")
        keeper = self._keeper(
            name,
            sources=[sources] if isinstance(sources, str) else sources,
            slots=slots,
            engine=engine,
            site=site,
            loads_any_version=loads_any_version,
        )
        actor = kind(keeper, push_timeout, save_partials, handle_sigterm)
        self._process.actors.add(actor)
        return actor

    def actor(
        self,
        name: str = "",
        *,
        sources: Sequence[str] = (),
        slots: int = 1,
        engine: str = "",
        site: str = "",
        loads_any_version: bool = False,
        push_timeout: float = 600.0,
        save_partials: Optional[Callable[[Any], Optional[Rollout]]] = None,
        handle_sigterm: bool = True,
    ) -> SyncActor:
        """An iterator of assignments, at most `slots` at once; see AsyncRun.actor."""
        actor: SyncActor = self._actor(
            SyncActor,
            name,
            sources,
            slots,
            engine,
            site,
            loads_any_version,
            push_timeout,
            save_partials,
            handle_sigterm,
        )
        return actor

    def set_reward(
        self, attempt: Union[int, _BaseAssignment], reward: Union[float, Mapping[str, float]]
    ) -> Promise[PushResult]:
        """Delivers a reward after the push. Returns at once: await the result, ask for `.result()`, or let it be.

        The result is ACCEPTED, DUPLICATE (the attempt has all these rewards) or LATE (its group was done without it).
        Where it is asked for it raises InvalidRollout for a reward that the attempt's source does not have, or one that
        comes beside another that the attempt has already, and NotFound for an attempt that was not pushed yet, whose
        group is over, or of another run. A failure that nobody asks for is logged.
        """
        attempt_id = attempt if isinstance(attempt, int) else attempt.id
        keeper = self._any_keeper() if isinstance(attempt, int) else attempt._keeper
        rewards = reward if isinstance(reward, Mapping) else {"reward": reward}
        return keeper.set_reward(attempt_id, check_rewards(rewards))

    def push_group(
        self,
        source: str,
        rollouts: Sequence[Rollout],
        *,
        task: Any = None,
        task_id: str = "",
        timeout: float = 600.0,
    ) -> List[PushResult]:
        """Pushes a finished group without assignments (own curricula, offline data)."""
        found = next(_sources.tasks([{} if task is None else task], "id", None))
        if task is None:
            found.payload = b""
        found.external_id = task_id or found.external_id
        _sources.check(found, "group")
        group = actor_wire.GroupHeader(source=source, external_id=found.external_id, payload=found.payload)
        return push_group(self._connection, self._any_keeper().session, group, rollouts, timeout)

    # ---- policy

    def policy(self, policy: str = "") -> Policy:
        """Announcements of new weights: iterate, or read `latest`."""
        keeper = self._any_keeper()
        watch = Watch(self._connection, lambda: keeper.session, policy)
        self._process.watches.add(watch)
        return Policy(watch)

    def report_adoption(
        self,
        version: Union[int, Version],
        *,
        pause_s: float = 0.0,
        engine: str = "",
        pending_to_loaded_s: Optional[float] = None,
        host_load: float = 0.0,
    ) -> Promise[None]:
        """Tells that this process's engine holds `version`. Returns at once, see set_reward.

        pause_s: how long generation stood still. pending_to_loaded_s: from the announcement to now,
        if it is not given and this process follows the policy.
        """
        version = as_version(version)
        meter().host_load = host_load
        if pending_to_loaded_s is None:
            heard = [
                w.first_heard.get((version.branch, version.number)) for w in self._process.watches
            ]
            known = [at for at in heard if at is not None]
            pending_to_loaded_s = time.monotonic() - min(known) if known else 0.0
        keeper = self._any_keeper()
        request = actor_wire.ReportAdoptionRequest(
            engine=engine or keeper.engine or keeper.name,
            version=version.message(),
            pending_to_loaded_ms=int(pending_to_loaded_s * 1000),
            pause_ms=int(pause_s * 1000),
        )
        promise = keeper.report_adoption(request)
        for other in self._process.keepers:
            other.version = version.message()
        return promise

    # ---- trainers

    def trainer(
        self,
        *,
        mesh: Optional[Mesh] = None,
        groups: int = 0,
        tokens: int = 0,
        token_budget: int = 65_536,
        mini_batches: int = 1,
        max_lag: Optional[int] = None,
        sources: Sequence[str] = (),
        columns: Columns = DEFAULT_COLUMNS,
        context: Optional[Context] = None,
        mask_alignment: str = "token",
        fill_missing: bool = False,
        resume: Optional[int] = None,
        replan: bool = False,
        ahead: int = 0,
        advantages: Optional[Advantages] = None,
        name: str = "",
        policy: str = "",
        prefetch_bytes: int = PREFETCH_BYTES,
        step_timeout: float = STEP_TIMEOUT_S,
        fetch_timeout: float = FETCH_TIMEOUT_S,
        **spec: Any,
    ) -> Trainer:
        """A rank of the trainer: `with run.trainer(mesh=fb.Mesh(dp=8, dp_rank=rank), groups=64) as t:`.

        A step holds `groups` groups, or groups of `tokens` tokens; micro-batches of `token_budget`
        tokens; `mini_batches` optimizer steps. columns: what is fetched, names, or {name: None or Slice} for parts of
        columns. context: the share of the tokens that this peer takes. mask_alignment "predicting"
        shifts loss_mask to the position that predicts. resume: the next step to commit, by the
        trainer's own checkpoint. replan: pack open steps anew for this mesh. ahead: steps opened
        ahead of the one that is trained (0 or 1). advantages: a function of Scalars instead of the
        source's rule. Also: pad_multiple, groups_whole, refuse_over_budget, cost_linear, cost_quadratic;
        or cost_table, pairs of a sequence's tokens and what it was measured to cost (any unit): ranks
        are balanced by that.
        """
        mesh = mesh or Mesh()
        if not groups and not tokens:
            raise ValueError("give groups or tokens: what a step holds")
        if mask_alignment not in ALIGNMENTS:
            raise ValueError(f"mask_alignment is {mask_alignment!r}, must be one of {', '.join(ALIGNMENTS)}")
        wanted = step_spec(
            mesh,
            sources,
            advantages is not None,
            groups=groups,
            tokens=tokens,
            token_budget=token_budget,
            mini_batches=mini_batches,
            max_lag=max_lag,
            **spec,
        )
        return Trainer(
            self._connection,
            mesh=mesh,
            spec=wanted,
            columns=columns,
            name=name,
            policy=policy,
            resume=resume,
            replan=replan,
            ahead=ahead,
            advantages=advantages,
            fetch={"mask_alignment": ALIGNMENTS[mask_alignment], "fill_missing": fill_missing},
            context=context,
            prefetch_bytes=prefetch_bytes,
            step_timeout=step_timeout,
            fetch_timeout=fetch_timeout,
        )

    def start_eval(
        self, source: str, version: Union[int, Version] = 0, attempts: int = 1, share: float = 1.0
    ) -> _status.Eval:
        """Evaluates a published version on an eval source, each task `attempts` times."""
        request = admin_wire.StartEvalRequest(
            eval_run=random_id(),
            source=source,
            version=as_version(version).message(),
            attempts=attempts,
            share=share,
        )
        response = self._connection.call(ADMIN + "StartEval", request, admin_wire.StartEvalResponse)
        return _status.Eval(self._connection, response.eval_run or request.eval_run)

    def close(self, timeout: float = 10.0) -> None:
        """Saves and gives back what actors hold, and closes all connections; `timeout` seconds for all together."""
        process = self._process
        close_together([self], timeout)
        for watch in list(process.watches):
            watch.close()
        self._processes = {}
        self._connection.close()


def close_together(runs: Sequence[SyncRun], timeout: float) -> None:
    """Saves and gives back what the actors of all `runs` hold, within `timeout` seconds for all together."""
    processes = [run._process for run in runs]
    keepers = [keeper for process in processes for keeper in process.keepers]
    keepers += [process.background for process in processes if process.background is not None]
    save_and_close([actor for process in processes for actor in process.actors], timeout, keepers)


class AsyncRun:
    """All calls of a run, asynchronous: `run.aio`. Each is the twin of the one of the same name in SyncRun."""

    def __init__(self, sync: SyncRun) -> None:
        self._sync = sync

    async def load(self, source: str, dataset: _sources.Dataset, **options: Any) -> Loaded:
        return await in_thread(lambda: self._sync.load(source, dataset, **options))

    async def configure(self, source: str, **settings: Any) -> None:
        await in_thread(lambda: self._sync.configure(source, **settings))

    async def sources(self) -> Dict[str, _status.Source]:
        return await in_thread(self._sync.sources)

    async def status(self) -> _status.Status:
        return await in_thread(self._sync.status)

    def usage(self) -> Usage:
        return self._sync.usage()

    def actor(
        self,
        name: str = "",
        *,
        sources: Sequence[str] = (),
        slots: int = 256,
        engine: str = "",
        site: str = "",
        loads_any_version: bool = False,
        push_timeout: float = 600.0,
        save_partials: Optional[Callable[[Any], Optional[Rollout]]] = None,
        handle_sigterm: bool = True,
    ) -> Actor:
        """An iterator of assignments, at most `slots` at once: `async for a in run.actor("env-3"):`.

        sources: only from these; none means any. engine: the inference server that it samples from.
        loads_any_version: an evaluation's pinned version can be loaded on demand. save_partials:
        called with each assignment under way when the process gets SIGTERM (or the actor is closed);
        what it returns, a Rollout or None, is saved for whoever continues the attempt.
        """
        actor: Actor = self._sync._actor(
            Actor,
            name,
            sources,
            slots,
            engine,
            site,
            loads_any_version,
            push_timeout,
            save_partials,
            handle_sigterm,
        )
        return actor

    def set_reward(
        self, attempt: Union[int, _BaseAssignment], reward: Union[float, Mapping[str, float]]
    ) -> Promise[PushResult]:
        return self._sync.set_reward(attempt, reward)

    async def push_group(self, source: str, rollouts: Sequence[Rollout], **options: Any) -> List[PushResult]:
        return await in_thread(lambda: self._sync.push_group(source, rollouts, **options))

    def policy(self, policy: str = "") -> Policy:
        return self._sync.policy(policy)

    def report_adoption(self, version: Union[int, Version], **options: Any) -> Promise[None]:
        return self._sync.report_adoption(version, **options)

    def trainer(self, **options: Any) -> AsyncTrainer:
        return AsyncTrainer(self._sync.trainer(**options))

    async def start_eval(self, source: str, *arguments: Any, **options: Any) -> AsyncEval:
        return AsyncEval(await in_thread(lambda: self._sync.start_eval(source, *arguments, **options)))

    async def close(self, timeout: float = 10.0) -> None:
        await in_thread(self._sync.close, timeout)
