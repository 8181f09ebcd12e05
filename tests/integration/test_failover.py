"""The Python package follows a cluster: while its nodes die, freeze and take over, no call fails before its deadline,
and nothing is lost or doubled."""

import asyncio
import os
import pathlib
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT / "python"))
BIN = pathlib.Path(os.environ.get("FOREBAY_BIN", ROOT / "build" / "release" / "bin"))
os.environ.setdefault("FOREBAY_BUFFERD", str(BIN / "bufferd"))

import forebay as fb  # noqa: E402

GROUPS = 3
WAIT_S = 30 * int(os.environ.get("FOREBAY_SLOWNESS", "1"))


class FakeCluster:
    """Nodes that tell who leads, before one daemon; see fake_cluster_main.cc."""

    def __init__(self, backend):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._process = subprocess.Popen([str(BIN / "fake_cluster"), backend, "3"], text=True, bufsize=1, **pipes)
        self.seeds = self._process.stdout.readline().strip()

    def _ask(self, command, node):
        self._process.stdin.write(f"{command} {node}\n")
        return self._process.stdout.readline().strip()

    def do(self, command, node):
        assert self._ask(command, node) == "ok"

    def count(self, what, node):
        return int(self._ask(what, node))

    def address(self, node):
        return self.seeds.split(",")[node - 1]

    def close(self):
        self._process.stdin.close()
        assert self._process.wait(WAIT_S) == 0


@pytest.fixture
def daemon():
    with fb.start() as run:
        run.load(
            "math",
            [{"id": str(i)} for i in range(2000)],
            group_size=2,
            keep_equal_rewards=True,
            max_lag=4,
            reward_timeout_s=600.0,
        )
        yield run


@pytest.fixture
def cluster(daemon):
    fakes = FakeCluster(daemon.target)
    yield fakes
    fakes.close()


def eventually(condition):
    until = time.monotonic() + WAIT_S
    while not (found := condition()):
        assert time.monotonic() < until, "it did not come about"
        time.sleep(0.01)  # poll: what is waited for is no event here
    return found


def rollout(seed):
    return fb.Rollout(np.arange(seed, seed + 16, dtype=np.uint32), prompt_tokens=8, logprobs=np.ones(16, np.float32))


class Work:
    """Actors in both styles, a trainer and an operator, until they are told to stop."""

    def __init__(self, target):
        self.run = fb.connect(target, timeout=WAIT_S)
        self.failures, self.trained = [], []
        self.steps = self.pushed = self.versions = 0
        self._seed = 0
        self._stop = threading.Event()
        self._lock = threading.Lock()
        work = [self.act, self.act, self.act_in_a_loop, self.train, self.operate, self.follow, self.push_groups]
        self._threads = [threading.Thread(target=self._guarded, args=(one,), daemon=True) for one in work]
        for thread in self._threads:
            thread.start()

    def _guarded(self, work):
        try:
            work()
        except Exception as error:
            if not self._stop.is_set():
                self.failures.append(f"{work.__name__}: {error!r}")

    def seed(self):
        with self._lock:
            self._seed += 100
            return self._seed

    def act(self):
        with self.run.sync.actor("sync", slots=4) as actor:
            while not self._stop.is_set():
                seed = self.seed()
                with actor.next(timeout=WAIT_S) as assignment:
                    if seed % 300:
                        assignment.push(rollout(seed), reward=float(seed % 200 == 0))
                    else:
                        assignment.push(rollout(seed))
                        self.run.set_reward(assignment, 1.0).result(timeout=WAIT_S)
                self.pushed += 1

    def act_in_a_loop(self):
        async def loop():
            async with self.run.actor("async", slots=4) as actor:
                async for assignment in actor:
                    async with assignment:
                        await assignment.push(rollout(self.seed()), reward=1.0)
                    self.pushed += 1
                    if self._stop.is_set():
                        return

        asyncio.run(loop())

    def train(self):
        with self.run.trainer(groups=GROUPS, token_budget=32) as trainer:
            for step in trainer.steps():
                for batch in step:
                    for begin in batch.cu_seqlens[:-1]:
                        self.trained.append(int(batch.tokens[int(begin)]))
                step.commit()
                trainer.publish(step.next_version, where="/weights")
                self.steps += 1
                if self._stop.is_set():
                    return

    def operate(self):
        number = 0
        while not self._stop.wait(0.02):
            number += 1
            self.run.load("math", [{"id": f"new-{number}"}])
            self.run.status()

    def follow(self):
        for version in self.run.sync.policy():
            self.versions = max(self.versions, version.number)
            if self._stop.is_set():
                return

    def push_groups(self):
        number = 0
        while not self._stop.wait(0.02):
            number += 1
            rollouts = [rollout(self.seed()) for _ in range(2)]
            for one in rollouts:
                one.rewards = {"reward": 1.0}
            self.run.push_group("math", rollouts, task_id=f"own-{number}", task={"own": number})

    def stop(self):
        self._stop.set()
        self.run.close()
        for thread in self._threads:
            thread.join(WAIT_S)


@pytest.mark.parametrize("fault", ["kill", "freeze", "switch", "flip"])
def test_work_goes_on_while_the_lead_moves(cluster, fault):
    cluster.do("lead", 1)
    work = Work(cluster.seeds)
    leader = 1
    for _ in range(3):
        steps = work.steps
        eventually(lambda: work.steps >= steps + 2 or work.failures)
        assert not work.failures
        following = leader % 3 + 1
        if fault in ("kill", "freeze"):
            cluster.do(fault, leader)
        elif fault == "flip":
            cluster.do("lead", following)
            cluster.do("lead", leader)
        cluster.do("lead", following)
        steps = work.steps
        eventually(lambda: work.steps > steps or work.failures)
        assert not work.failures
        if fault in ("kill", "freeze"):
            cluster.do("revive", leader)
        leader = following
    eventually(lambda: work.versions >= work.steps - 1)
    work.stop()
    assert not work.failures
    assert len(set(work.trained)) == len(work.trained)
    assert len(work.trained) >= work.steps * GROUPS * 2


def test_a_refusal_leads_to_the_leader(cluster):
    cluster.do("lead", 2)
    with fb.connect(cluster.address(1)) as run:
        assert run.status().verdict
    assert cluster.count("served", 1) == 0
    assert cluster.count("served", 2) > 0


def test_dead_and_frozen_seeds_are_passed_over(cluster):
    cluster.do("freeze", 1)
    cluster.do("kill", 2)
    cluster.do("lead", 3)
    with fb.connect(f"127.0.0.1:1, {cluster.seeds}") as run:
        assert run.status().verdict


def test_waits_while_nobody_leads(cluster):
    cluster.do("lead", 1)
    with fb.connect(cluster.seeds) as run:
        run.status()
        cluster.do("lead", 0)
        elect = threading.Timer(1.0, cluster.do, ("lead", 3))
        elect.start()
        assert run.status().verdict
        elect.join()


def test_says_whom_it_asked_when_nobody_leads_in_time(cluster):
    with fb.connect(cluster.seeds, timeout=0.5) as run:
        with pytest.raises(fb.Unavailable, match="no node is known that does") as raised:
            run.status()
    for node in (1, 2, 3):
        assert cluster.address(node) in str(raised.value)


def test_another_node_than_the_leader_is_watched_and_given_up_when_silent(cluster):
    cluster.do("lead", 1)
    with fb.connect(cluster.seeds) as run:
        run.status()

        def watched():
            return [node for node in (1, 2, 3) if cluster.count("watches", node)]

        def alone():  # in one look: on a busy machine it may move on at once
            nodes = watched()
            return nodes if nodes in ([2], [3]) else None

        (silent,) = eventually(alone)
        third = 5 - silent
        cluster.do("freeze", silent)
        eventually(lambda: third in watched())
        cluster.do("freeze", 1)
        cluster.do("lead", third)
        assert run.status().verdict
