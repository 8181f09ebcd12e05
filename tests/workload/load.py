"""The clients of a run: actors, a trainer, a loader, evaluations, groups pushed whole. Each has threads of its own.

They go through the package's own calls and know nothing of kills: an exception in one of them is a failed check.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Any

import forebay as fb
import numpy as np
from calls import OK, Call
from content import digest, eval_reward, reward_of, rollout, tag_of, task, task_number, wrong_column, wrong_partial
from forebay import _group
from forebay._messages import actor as actor_wire
from journal import Journal, Pushed, SealedStep

TRAIN, EVAL, OFFLINE, NATIVE = "math", "held-out", "offline", "native"  # the last for clients in C++, if there are any
GROUP_SIZE, STEP_GROUPS, MAX_LAG = 4, 8, 12
TASKS_AT_FIRST, TASKS_AT_ONCE, EVAL_TASKS, EVAL_ATTEMPTS = 200, 20, 6, 2
NATIVE_TASKS = 2000
ACTORS, THREADS_PER_ACTOR, SLOTS = 3, 3, 6
CALL_TIMEOUT_S = 60.0
ABORT_SHARE, CHECKPOINT_SHARE = 0.05, 0.1


class Load:
    def __init__(self, target: str, journal: Journal, seed: int, ahead: int, native: bool = False) -> None:
        self._target, self.journal, self._seed, self._ahead = target, journal, seed, ahead
        self._stop = threading.Event()
        self._stop_actors = threading.Event()
        self._threads: list[threading.Thread] = []
        self._actors: list[Any] = []
        self._runs: list[fb.Run] = []
        self._batches: list[tuple[str, list[dict[str, Any]]]] = []
        self._starts = 0
        journal.facts.trained_sources = (TRAIN, OFFLINE, NATIVE) if native else (TRAIN, OFFLINE)
        self.admin = self._connect()

    def _connect(self) -> fb.Run:
        run = fb.connect(self._target, timeout=CALL_TIMEOUT_S)
        self._runs.append(run)
        return run

    # ---- beginning and end

    def prepare(self) -> None:
        """Sources and their first tasks."""
        lease = {"lease_min_s": 30, "lease_max_s": 60}
        self._add_source(TRAIN, group_size=GROUP_SIZE, max_lag=MAX_LAG, order="shuffled", keep_equal_rewards=True, reward_timeout_s=20, **lease)
        self._add_source(OFFLINE, group_size=GROUP_SIZE, max_lag=MAX_LAG, paused=True)
        self._add_source(EVAL, purpose="eval", group_size=1, **lease)
        for name in self.journal.facts.trained_sources[2:]:
            self._add_source(name, group_size=2, max_lag=MAX_LAG, order="shuffled", keep_equal_rewards=True, reward_timeout_s=20, **lease)
            self._add_tasks(name, range(NATIVE_TASKS))
        self._add_tasks(TRAIN, range(TASKS_AT_FIRST))
        self._add_tasks(EVAL, range(EVAL_TASKS))

    def start(self) -> None:
        """Also again after `stop`: other clients of the same run."""
        self._starts += 1
        self._stop.clear()
        self._stop_actors.clear()
        self._threads, self._actors = [], []
        for number in range(ACTORS):
            run = self._connect()
            actor = run.sync.actor(f"actor-{number}", sources=[TRAIN, EVAL], slots=SLOTS, loads_any_version=True, handle_sigterm=False)
            self._actors.append(actor)
            for thread in range(THREADS_PER_ACTOR):
                self._spawn("actor", self._act, run, actor, self._rng("actor", number, thread), stop=self._stop_actors)
        self._spawn("trainer", self._train, self._connect(), self._rng("trainer"))
        self._spawn("loader", self._load_tasks, self._rng("loader"))
        self._spawn("evaluation", self._evaluate, self._connect(), self._rng("evaluation"))
        self._spawn("groups", self._push_groups, self._connect(), self._rng("groups"))

    def _rng(self, *parts: Any) -> random.Random:
        return random.Random(f"{self._seed}/{self._starts}/{parts}")

    def _spawn(self, name: str, work: Callable[..., None], *arguments: Any, stop: threading.Event | None = None) -> None:
        """Runs `work` again and again; nothing that happens to the daemon may raise in it."""
        ended = stop or self._stop

        def loop() -> None:
            while not ended.is_set():
                try:
                    work(*arguments)
                except Exception as error:
                    if ended.is_set() and isinstance(error, (fb.Cancelled, fb.DeadlineExceeded)):
                        return
                    self.journal.check("clients_survive", False, f"{name}: {type(error).__name__}: {error}")
                    ended.wait(0.5)

        thread = threading.Thread(target=loop, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def stop(self) -> None:
        """Ends all clients at a moment when they have nothing in doubt."""
        self._stop.set()
        self._join([t for t in self._threads if t.name != "actor"])
        self._stop_actors.set()
        self._join([t for t in self._threads if t.name == "actor"])
        for actor in self._actors:
            actor.close(20.0)
        for run in self._runs[1:]:
            run.close(5.0)
        del self._runs[1:]

    def _join(self, threads: list[threading.Thread]) -> None:
        deadline = time.monotonic() + 90
        for thread in threads:
            thread.join(max(0.1, deadline - time.monotonic()))
            self.journal.check("clients_end", not thread.is_alive(), f"{thread.name} still waits")

    def abandon(self) -> None:
        """Ends what is left, whatever it waits for; the daemon is gone."""
        self._stop.set()
        self._stop_actors.set()
        for run in self._runs:
            run.close(0.1)

    # ---- sources and tasks

    def _add_source(self, name: str, **settings: Any) -> None:
        with self.journal as facts:
            facts.changing.add(name)
        self.admin.configure(name, **settings)
        with self.journal as facts:
            facts.settings.setdefault(name, {}).update(settings)
            facts.changing.discard(name)

    def _add_tasks(self, source: str, numbers: range) -> None:
        batch = [task(source, number) for number in numbers]
        ids = {item["id"] for item in batch}
        with self.journal as facts:
            facts.adding.setdefault(source, set()).update(ids)
        loaded = self.admin.load(source, batch)
        with self.journal as facts:
            facts.adding[source] -= ids
            facts.tasks.setdefault(source, set()).update(ids)
        self.journal.check("tasks_added", loaded.added + loaded.known == len(batch), f"{loaded} of {len(batch)}")
        self._batches.append((source, batch))

    def repeat_tasks(self, run: fb.Run, rng: random.Random) -> None:
        """Tasks whose addition was acknowledged are known."""
        source, batch = rng.choice(self._batches)
        loaded = run.load(source, batch)
        self.journal.check("tasks_repeated", loaded.added == 0, f"{loaded.added} of {len(batch)} tasks were added again")

    def _load_tasks(self, rng: random.Random) -> None:
        with self.journal as facts:
            begin = len(facts.tasks[TRAIN]) + len(facts.adding[TRAIN])
        self._add_tasks(TRAIN, range(begin, begin + TASKS_AT_ONCE))
        if rng.random() < 0.3:
            self._add_source(TRAIN, weight=rng.choice([1.0, 2.0, 3.0]))
        if rng.random() < 0.2:
            with self.journal as facts:
                name = f"more-{len(facts.settings)}"
            self._add_source(name, group_size=2, paused=True)
            self._add_tasks(name, range(5))
        self._stop.wait(rng.uniform(0.2, 1.0))

    # ---- actors

    def _act(self, run: fb.Run, actor: Any, rng: random.Random) -> None:
        begin = time.monotonic()
        a = actor.next(timeout=0.5)
        if a is None:
            return
        under = {"attempt": a.id, "lease": lease_of(a)}
        self.journal.calls.add([Call(client_name(), "grant", begin, time.monotonic(), OK, **under)])
        self.journal.check("task_contents", a.task == task(a.source, task_number(a.task_id)), f"of {a.source}/{a.task_id}")
        if rng.random() < 0.3:
            a.cancelled.wait_blocking(rng.uniform(0.0, 1.5))
        with a:
            if a.is_eval:
                self._answer_eval(a)
            else:
                self._answer(run, a, rng)

    def _answer_eval(self, a: Any) -> None:
        tag = self.journal.tag()
        with self.journal.calls.record("push", attempt=a.id, lease=lease_of(a)) as call:
            call.result = a.push(rollout(tag, a.version.number), reward=eval_reward(a.task_id, a.attempt)).name.lower()
        with self.journal as facts:
            facts.evaluated += 1

    def _answer(self, run: fb.Run, a: Any, rng: random.Random) -> None:
        self._check_partial(a)
        kind = rng.random()
        under = {"attempt": a.id, "lease": lease_of(a)}
        if kind < 0.08:
            with self.journal.calls.record("give_back", **under):
                return a.fail("a die fell so") if kind < 0.03 else a.release()
        tag = self.journal.tag()
        version = min(a.version.number, a.partial.versions[0][1]) if a.partial is not None else a.version.number
        made = rollout(tag, version)
        if kind < 0.15:
            return self._save_partial(a, tag, version, made)
        with self.journal as facts:
            facts.pushing[tag] = Pushed(TRAIN, a.id, a.task_id)
        try:
            late_reward = rng.random() < 0.2
            with self.journal.calls.record("push", tag=tag, **under) as call:
                result = a.push(made) if late_reward else a.push(made, reward=reward_of(tag))
                call.result = result.name.lower()
        except (fb.Stale, fb.LeaseLost) as error:
            # What is refused as stale is handed out again: asked once more, its lease is gone.
            with self.journal as facts:
                del facts.pushing[tag]
                too_old = facts.floor - version > MAX_LAG
            self.journal.check("leases_go_on", too_old, f"version {version} of {facts.floor}: {error}")
            return
        if result is fb.PushResult.LATE:
            with self.journal as facts:
                del facts.pushing[tag]
            return
        self.journal.accepted([tag])
        if late_reward:
            with self.journal.calls.record("reward", tag=tag, **under) as call:
                outcome = run.set_reward(a, reward_of(tag)).result(CALL_TIMEOUT_S)
                call.result = outcome.name.lower()
            good = (fb.PushResult.ACCEPTED, fb.PushResult.DUPLICATE, fb.PushResult.LATE)
            self.journal.check("late_reward", outcome in good, f"was answered with {outcome}")

    def _check_partial(self, a: Any) -> None:
        """What was saved comes with the attempt, unless it is of weights that have become too old."""
        with self.journal as facts:
            tag, version = facts.partials.pop(a.id, (None, 0))
            too_old = facts.floor - version > MAX_LAG
        if tag is None or (a.partial is None and too_old):
            return
        wrong = "nothing" if a.partial is None else wrong_partial(a.partial, tag)
        self.journal.check("partial_kept", not wrong, f"attempt {a.id:#x}, version {version} of {facts.floor}: {wrong}")

    def _save_partial(self, a: Any, tag: int, version: int, made: fb.Rollout) -> None:
        # Before the answer comes, somebody else may have the attempt.
        with self.journal as facts:
            facts.partials[a.id] = (tag, version)
        try:
            with self.journal.calls.record("give_back", attempt=a.id, lease=lease_of(a)):
                taken = a.save_partial(made) is not fb.PushResult.LATE
        except fb.Stale:
            taken = False
        except fb.LeaseLost:
            return  # it is in, the answer was lost, and somebody else has the attempt already
        if not taken:
            with self.journal as facts:
                facts.partials.pop(a.id, None)

    # ---- the trainer

    def _train(self, run: fb.Run, rng: random.Random) -> None:
        with self.journal as facts:
            facts.attaching = True
        trainer = run.trainer(
            groups=STEP_GROUPS, token_budget=4096, mini_batches=2, ahead=self._ahead, sources=list(self.journal.facts.trained_sources),
            columns=("tokens", "loss_mask", "logprobs", "text"), prefetch_bytes=8 << 20, step_timeout=120,
        )  # fmt: skip
        with self.journal.calls.record("attach") as call:
            trainer.__enter__()
            call.generation = trainer.generation
        with self.journal as facts:
            facts.attaching, facts.generation = False, trainer.generation
            newest = max(facts.committed, default=0)
            in_doubt = facts.committing
        if in_doubt is not None and trainer.next_step == in_doubt.number + 1:
            self.journal.commit_acknowledged(in_doubt)
            newest += 1
        self.journal.check("commit_stays", trainer.next_step == newest + 1, f"next step {trainer.next_step} after {newest}")
        self._publish(trainer, trainer.train_version)  # a trainer that crashed may not have come so far
        try:
            for step in trainer.steps():
                if not self._train_step(trainer, step, rng):
                    return  # as if it had crashed: the step stays open, and its successor gets it again
                if self._stop.is_set():
                    return trainer.__exit__(None, None, None)
        finally:
            trainer._scope.cancel()
            trainer._fetcher.close()

    def _train_step(self, trainer: Any, step: Any, rng: random.Random) -> bool:
        """False when the trainer is to crash within the step."""
        sealed = SealedStep(
            step.number, step.revision, trainer.generation, step.plan_hash, step.totals.groups, [len(m) for m in step.mini_batches()]
        )
        with self.journal as facts:
            before = facts.sealed
            if before is not None and before.number == sealed.number and before.revision == sealed.revision:
                self.journal.check("plan_stays", before.plan_hash == sealed.plan_hash, f"of step {step.number} changed")
                sealed.digests, sealed.tags, sealed.put = before.digests, before.tags, before.put
            facts.sealed = sealed
        at = {"branch": step.next_version.branch, "step": step.number, "revision": step.revision, "generation": trainer.generation}
        self.journal.calls.add([Call(client_name(), "open", time.monotonic(), time.monotonic(), OK, plan=step.plan_hash, **at)])
        for mb in step:
            self._check(step, sealed, mb)
        if rng.random() < ABORT_SHARE:
            return self._abort(step, at)
        if rng.random() < 0.3:
            for mb in step:
                self._put(step, sealed, mb)
        if rng.random() < 0.15:
            return False
        for mini in step.mini_batches():
            for mb in mini:
                self._check(step, sealed, mb)
            self._stop.wait(rng.uniform(0.0, 0.15))
        if rng.random() < 0.2:
            self._stop.wait(rng.uniform(0.5, 2.0))  # rollouts pile up meanwhile, more than memory holds
        with self.journal as facts:
            facts.committing, facts.floor = sealed, step.next_version.number
        with self.journal.calls.record("commit", plan=step.plan_hash, **at):
            version = step.commit()
        self.journal.commit_acknowledged(sealed)
        self._publish(trainer, version)
        if rng.random() < CHECKPOINT_SHARE:
            covered = trainer.checkpoint()
            self.journal.check("checkpoint", covered >= step.number, f"covers {covered} after step {step.number}")
        return True

    def _abort(self, step: Any, at: dict[str, int]) -> bool:
        """Its groups are served again, in another revision; the trainer begins anew."""
        with self.journal as facts:
            facts.sealed = None
        with self.journal.calls.record("abort", **at):
            step.abort("a die fell so")
        return False

    def _check(self, step: Any, sealed: SealedStep, mb: fb.MicroBatch) -> None:
        place = (mb.mini_batch, mb.index)
        where = f"micro-batch {place} of step {step.number}"
        found = digest(mb)
        before = sealed.digests.get(place)
        if before is None:
            for index in range(len(mb)):
                wrong = wrong_column(mb, index)
                self.journal.check("trained_bytes", not wrong, f"{where}: {wrong}")
        else:
            self.journal.check("refetched_bytes", found == before, f"{where} has other bytes than before")
        if "old_logprobs" in mb.columns and place in sealed.put:
            same = mb.columns["old_logprobs"].tobytes() == sealed.put[place]
            self.journal.check("put_columns", same, f"{where}: old_logprobs are not what was put")
        tags = [tag_of(mb.sequence("tokens", index)) for index in range(len(mb))]
        now = time.monotonic()
        at = {"step": step.number, "revision": step.revision, "branch": step.next_version.branch}
        self.journal.calls.add([Call(client_name(), "fetch", now, now, OK, place=list(place), digest=found, tags=tags, **at)])
        with self.journal:
            sealed.digests[place], sealed.tags[place] = found, tags

    def _put(self, step: Any, sealed: SealedStep, mb: fb.MicroBatch) -> None:
        if not len(mb):
            return
        values = np.random.default_rng(step.number).standard_normal(mb.padded_tokens, np.float32)
        values[mb.num_tokens :] = 0
        step.put(mb, old_logprobs=values)
        with self.journal:
            sealed.put[mb.mini_batch, mb.index] = values.tobytes()

    def _publish(self, trainer: Any, version: fb.Version) -> None:
        with self.journal as facts:
            facts.publishing = version.number
        trainer.announce(version, where=f"/weights/{version}")
        with self.journal.calls.record("publish", version=version.number, branch=version.branch):
            trainer.publish(version, where=f"/weights/{version}")
        with self.journal as facts:
            facts.published, facts.publishing = version.number, None

    # ---- evaluations

    def _evaluate(self, run: fb.Run, rng: random.Random) -> None:
        evaluation = run.start_eval(EVAL, attempts=EVAL_ATTEMPTS)
        result = evaluation.wait(timeout=120)
        rewards = [eval_reward(f"{EVAL}-{i}", k) for i in range(EVAL_TASKS) for k in range(EVAL_ATTEMPTS)]
        right = result.rollouts == len(rewards) and abs(result.mean - sum(rewards) / len(rewards)) < 1e-9
        self.journal.check("evaluation", right, f"{result}; expected {sum(rewards) / len(rewards):.3f} of {len(rewards)}")
        with self.journal as facts:
            facts.evals[evaluation.id] = result
        self._stop.wait(rng.uniform(0.5, 2.0))

    # ---- groups that are pushed whole

    def _push_groups(self, run: fb.Run, rng: random.Random) -> None:
        tags = [self.journal.tag() for _ in range(GROUP_SIZE)]
        item = task(OFFLINE, tags[0])
        with self.journal as facts:
            published = facts.published
            facts.pushing.update((tag, Pushed(OFFLINE, 0, item["id"])) for tag in tags)
        header = actor_wire.GroupHeader(source=OFFLINE, external_id=item["id"], payload=repr(item).encode())
        session = run.sync._any_keeper().session
        try:
            with self.journal.calls.record("push_group", tags=tags) as call:
                push_group(run, session, header, tags, published)
                call.result = "accepted"
        except fb.Stale:
            with self.journal as facts:
                for tag in tags:
                    del facts.pushing[tag]
            return
        self.journal.accepted(tags)
        with self.journal as facts:
            facts.groups.append((header, tags, published))
        self._stop.wait(rng.uniform(0.3, 1.0))


def lease_of(a: Any) -> str:
    return f"{a.id:x}/{a._lease.assignment.token:x}"


def client_name() -> str:
    thread = threading.current_thread()
    return f"{thread.name}-{thread.native_id}"


def push_group(run: fb.Run, session: int, header: Any, tags: list[int], version: int) -> list[fb.PushResult]:
    """Again with the same header is the same request."""
    rollouts = [rollout(tag, version) for tag in tags]
    for made, tag in zip(rollouts, tags, strict=True):
        made.rewards["reward"] = reward_of(tag)
    return _group.push_group(run._connection, session, header, rollouts, CALL_TIMEOUT_S)
