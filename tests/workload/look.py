"""Looks at a daemon that has just recovered, before any client reaches it, and holds it against the journal.

What was acknowledged must be there; what was in doubt may be; nothing else may.
"""

from __future__ import annotations

import collections
import time
from typing import Any

import forebay as fb
from content import digest
from forebay._connection import Connection
from forebay._fetch import Fetcher, requests_of
from forebay._messages import admin as admin_wire
from forebay._messages import trainer as wire
from forebay._status import eval_result_of
from journal import Facts, Journal, SealedStep
from load import EVAL, GROUP_SIZE, OFFLINE, push_group

ADMIN, TRAINER = "/forebay.v1.AdminService/", "/forebay.v1.TrainerService/"
CALL_TIMEOUT_S = 20.0
SETTLE_S = 5.0


class Look:
    def __init__(self, target: str, journal: Journal, facts: Facts) -> None:
        self._journal, self._facts = journal, facts
        self.run = fb.connect(target, timeout=CALL_TIMEOUT_S)
        self.held: set[int] = set()  # tags, as check_rollouts found
        self.dropped = 0
        self._connection: Connection = self.run._connection

    def __enter__(self) -> Look:
        return self

    def __exit__(self, *_: Any) -> None:
        self.run.close(1.0)

    def check_all(self) -> None:
        self.check_steps()
        self.check_rollouts()
        self.check_versions()
        self.check_sources()
        self.check_evals()
        self.check_sealed_step()
        self.check_repeated_group()

    def _call(self, service: str, method: str, request: Any, response: Any) -> Any:
        return self._connection.call(service + method, request, response, wait=True)

    def _check(self, name: str, holds: bool, why: str = "") -> bool:
        return self._journal.check(name, holds, why)

    # ---- steps

    def _steps(self) -> dict[int, Any]:
        request = admin_wire.ListStepsRequest(count=1000)
        return {s.step: s for s in self._call(ADMIN, "ListSteps", request, admin_wire.ListStepsResponse).steps}

    def committed_in_doubt(self) -> bool:
        """Whether the commit that was under way has taken effect."""
        doubt = self._facts.committing
        return doubt is not None and self.run.status().next_step == doubt.number + 1

    def check_steps(self) -> None:
        newest = max(self._facts.committed, default=0) + self.committed_in_doubt()
        status = self.run.status()
        self._check("commit_stays", status.next_step == newest + 1, f"next step {status.next_step}, committed up to {newest}")
        steps = self._steps()
        for number, plan_hash in self._facts.committed.items():
            held = steps.get(number)
            if held is not None:
                good = held.state == wire.STEP_STATE_COMMITTED and held.plan_hash == plan_hash
                self._check("commit_stays", good, f"step {number} is in state {held.state} with another plan")
        self._check("commit_stays", newest == 0 or newest in steps, f"step {newest} is not listed")

    # ---- rollouts

    def _rollouts(self) -> list[Any]:
        found: list[Any] = []
        token = ""
        while True:
            request = admin_wire.ListRolloutsRequest(page_size=10_000, page_token=token)
            response = self._call(ADMIN, "ListRollouts", request, admin_wire.ListRolloutsResponse)
            found += response.rollouts
            token = response.page_token
            if not token:
                return found

    def check_rollouts(self) -> None:
        facts = self._facts
        trained = dict(facts.trained)
        if facts.committing is not None and self.committed_in_doubt():
            trained.update((tag, facts.committing.number) for tag in facts.committing.all_tags())
        self._await_commits(len(trained))
        listed = self._rollouts()
        sources = self.run.sources()
        for source in facts.trained_sources:
            held = self._held_tags(source, [r for r in listed if r.source == source])
            self._balance(sources[source], source, held, trained)
            self.held |= held
            self.dropped += sum(sources[source].dropped.values())
        ids = collections.Counter(r.rollout_id for r in listed)
        self._check("held_once", not [i for i, n in ids.items() if n > 1], "a rollout is listed twice")

    def _await_commits(self, trained: int) -> None:
        """The ledger commits a step, and then tells the shards: after a crash it tells them again."""
        deadline = time.monotonic() + SETTLE_S
        while time.monotonic() < deadline:
            sources = self.run.sources()
            if sum(sources[source].trained for source in self._facts.trained_sources) >= trained:
                return
            time.sleep(0.02)  # poll: until the shards have heard of the last commit

    def _held_tags(self, source: str, listed: list[Any]) -> set[int]:
        """Tags of the rollouts that the daemon holds; each must be known to a client."""
        known = {**self._facts.pushing, **self._facts.pushed}
        by_attempt = {p.attempt: tag for tag, p in known.items() if p.source == source and p.attempt}
        by_task: dict[str, list[int]] = collections.defaultdict(list)
        for tag, p in known.items():
            if p.source == source and not p.attempt:
                by_task[p.task_id].append(tag)
        held: set[int] = set()
        groups = collections.Counter(r.external_id for r in listed if r.attempt_id not in by_attempt)
        for r in listed:
            if r.attempt_id in by_attempt:
                held.add(by_attempt[r.attempt_id])
        for task_id, count in groups.items():
            tags = by_task.get(task_id, [])
            self._check("held_is_known", count <= len(tags), f"{count} rollouts of {source}/{task_id}, pushed were {len(tags)}")
            held.update(tags[:count])
        return held

    def _balance(self, state: Any, source: str, held: set[int], trained: dict[int, int]) -> None:
        """Each rollout is exactly one of held, trained, dropped with a reason."""
        pushed = {tag for tag, p in self._facts.pushed.items() if p.source == source}
        doubt = {tag for tag, p in self._facts.pushing.items() if p.source == source}
        in_steps = {tag for tag in trained if tag in pushed or tag in doubt}
        both = held & in_steps
        self._check("held_or_trained", not both, f"{source}: {sorted(both)[:3]} are held, and were trained")
        dropped = sum(state.dropped.values())
        missing = pushed - held - in_steps
        what = f"{source}: {len(pushed)} acknowledged, {len(doubt)} in doubt, {len(held)} held, {len(in_steps)} trained, {state}"
        self._check("nothing_lost", len(missing) <= dropped <= len(missing) + len(doubt), f"{what}: {len(missing)} missing")
        self._check("counted", state.rollouts == len(held) + state.trained + dropped, what)
        self._check("counted", state.trained == len(in_steps), what)
        self._check("counted", len(pushed) <= state.rollouts <= len(pushed) + len(doubt), what)

    # ---- versions, sources, tasks, evaluations

    def check_versions(self) -> None:
        number = self.run.status().published.number
        allowed = {self._facts.published, self._facts.publishing}
        self._check("versions", number in allowed, f"{number} is published, acknowledged was {self._facts.published}")

    def check_sources(self) -> None:
        states = {s.settings.name: s for s in self.run.sync._list_sources()}
        for name, settings in self._facts.settings.items():
            if not self._check("sources", name in states, f"{name} is gone"):
                continue
            if name not in self._facts.changing:
                self._check("sources", self._same_settings(name, settings, states[name].settings), f"{name}: settings changed")
        for name, ids in self._facts.tasks.items():
            there = self._task_ids(name)
            allowed = ids | self._facts.adding.get(name, set())
            self._check("tasks", ids <= there, f"{name}: {len(ids - there)} tasks are gone")
            self._check("tasks", there <= allowed, f"{name}: {len(there - allowed)} tasks that nobody added")

    @staticmethod
    def _same_settings(name: str, settings: dict[str, Any], held: Any) -> bool:
        from forebay import _sources

        return bool(_sources.settings(name, settings, held).encode() == held.encode())

    def _task_ids(self, source: str) -> set[str]:
        ids: set[str] = set()
        token = ""
        while True:
            request = admin_wire.ListTasksRequest(source=source, page_size=10_000, page_token=token)
            response = self._call(ADMIN, "ListTasks", request, admin_wire.ListTasksResponse)
            ids.update(t.external_id for t in response.tasks)
            token = response.page_token
            if not token:
                return ids

    def check_evals(self) -> None:
        for number, result in self._facts.evals.items():
            request = admin_wire.GetEvalRequest(eval_run=number)
            found = eval_result_of(self._call(ADMIN, "GetEval", request, admin_wire.EvalResult))
            self._check("evaluations", found == result, f"{EVAL}: was {result}, is {found}")

    # ---- requests that are repeated

    def check_sealed_step(self) -> None:
        """The step that was being trained: the same plan, and the same bytes; a commit that was acknowledged, once more."""
        facts = self._facts
        if facts.attaching or not facts.generation:
            return  # nobody knows which generation is the newest
        if facts.committed:
            self._repeat_commit(max(facts.committed))
        sealed = facts.sealed
        if sealed is None or self.committed_in_doubt():
            return
        held = self._steps().get(sealed.number)
        same = held is not None and (held.revision, held.plan_hash) == (sealed.revision, sealed.plan_hash)
        self._check("plan_stays", same, f"step {sealed.number}: was {sealed.plan_hash:#x}, is {held}")
        if same and sealed.generation == facts.generation:
            self._fetch_again(sealed)

    def _repeat_commit(self, number: int) -> None:
        request = wire.CommitStepRequest(generation=self._facts.generation, step=number, revision=1)
        for revision in range(1, 10):
            request.revision = revision
            try:
                response = self._call(TRAINER, "CommitStep", request, wire.CommitStepResponse)
            except fb.ForebayError as error:
                why = str(error)
                continue
            self._check("commit_repeated", response.already_committed, f"step {number} was committed by a repetition")
            return
        self._check("commit_repeated", False, f"step {number}: {why}")

    def _fetch_again(self, sealed: SealedStep) -> None:
        fetcher = Fetcher(self._connection, 16 << 20, 4 << 20)
        columns = ["tokens", "loss_mask", "logprobs", "text"]
        template = {
            "generation": sealed.generation,
            "step": sealed.number,
            "revision": sealed.revision,
            "dp_rank": 0,
            "mask_alignment": 1,
        }
        places = sorted(sealed.digests)
        wanted = [[*columns, "old_logprobs"] if place in sealed.put else columns for place in places]
        for mb in fetcher.fetch(requests_of(template, places, wanted, {}), 60.0):
            place = (mb.mini_batch, mb.index)
            where = f"micro-batch {place} of step {sealed.number}"
            self._check("refetched_bytes", digest(mb) == sealed.digests[place], f"{where} has other bytes than before")
            if place in sealed.put:
                same = mb.columns["old_logprobs"].tobytes() == sealed.put[place]
                self._check("put_columns", same, f"{where}: old_logprobs are not what was put")
        fetcher.close()

    def check_repeated_group(self) -> None:
        """A group that is in is told as a duplicate, and changes nothing."""
        if not self._facts.groups:
            return
        header, tags, version = self._facts.groups[-1]
        before = self.run.sources()[OFFLINE].rollouts
        session = self.run.sync._any_keeper()
        session.open()
        results = push_group(self.run, session.session, header, tags, version)
        good = results == [fb.PushResult.DUPLICATE] * GROUP_SIZE and self.run.sources()[OFFLINE].rollouts == before
        self._check("group_repeated", good, f"a repeated group was answered with {results}")
