"""What happens to a cluster under load, each from its begin until everything is healed and in sync again.

Every fault is one that the design promises to survive: of what is kept twice at least (min_in_sync 2 of 3), one copy may be
lost; processes may end or stand still as they like, since their disks stay.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from cluster import Cluster, Node, NotInTime
from network import HUB, both_ways
from processes import DISK_FULL_EXIT, Process

HOLD_S = (0.2, 4.0)
FREEZE_S = (1.0, 8.0)
DISK_FULL_TIMEOUT_S = 30.0
LOST_SEEN_S = 3.0
CLOCK_JUMPS_S = (-86_400.0, -30.0, 0.0, 45.0, 86_400.0)


class Faults:
    """Makes them; `told` collects what was done, for the log of a round."""

    def __init__(self, cluster: Cluster, rng: random.Random) -> None:
        self._cluster, self._rng = cluster, rng
        self.told: list[str] = []
        self.kills = self.freezes = self.cuts = 0
        self._begin = time.monotonic()
        self.ended_wrongly: list[str] = []

    def say(self, what: str) -> None:
        self.told.append(f"{time.monotonic() - self._begin:.1f} s: {what}")

    def _wait(self, seconds: float) -> None:
        time.sleep(seconds)  # poll: nothing; the instant is the seed's

    def _hold(self) -> None:
        self._wait(self._rng.uniform(*HOLD_S))

    def _leader(self) -> Node:
        return self._cluster.await_leader()

    def _followers(self) -> list[Node]:
        leader = self._leader()
        others = [node for node in self._cluster.nodes if node is not leader]
        self._rng.shuffle(others)
        return others

    def _kill(self, process: Process) -> None:
        self._look(process)
        process.kill()
        self.kills += 1

    def _look(self, process: Process) -> None:
        if not process.alive:
            self.ended_wrongly.append(f"{process.name} had ended with {process.exit_code}: {process.log_tail()}")

    # ---- processes

    def _kill_node(self, node: Node, role: str) -> None:
        self.say(f"kill {node.process.name}, {role}")
        self._kill(node.process)
        self._hold()
        node.process.start()

    def kill_leader(self) -> None:
        self._kill_node(self._leader(), "the leader")

    def kill_follower(self) -> None:
        self._kill_node(self._followers()[0], "a follower")

    def kill_two(self) -> None:
        """One after another, so that nothing can be committed; their disks stay."""
        first, second = self._rng.sample(self._cluster.nodes, 2)
        self.say(f"kill {first.process.name}, then {second.process.name}")
        self._kill(first.process)
        self._hold()
        self._kill(second.process)
        self._hold()
        for node in self._rng.sample([first, second], 2):
            node.process.start()
            self._wait(self._rng.uniform(0.0, 1.0))

    def kill_all(self) -> None:
        self.say("kill all nodes at once")
        for node in self._cluster.nodes:
            self._kill(node.process)
        for node in self._rng.sample(self._cluster.nodes, len(self._cluster.nodes)):
            node.process.start()
            self._wait(self._rng.uniform(0.0, 0.5))

    def _freeze_node(self, node: Node, role: str) -> None:
        seconds = self._rng.uniform(*FREEZE_S)
        self.say(f"freeze {node.process.name}, {role}, for {seconds:.1f} s")
        self._look(node.process)
        node.process.freeze()
        self.freezes += 1
        self._wait(seconds)
        node.process.thaw()

    def freeze_leader(self) -> None:
        self._freeze_node(self._leader(), "the leader")

    def freeze_follower(self) -> None:
        self._freeze_node(self._followers()[0], "a follower")

    def kill_frozen_leader(self) -> None:
        leader = self._leader()
        self.say(f"freeze {leader.process.name}, the leader, and kill it")
        leader.process.freeze()
        self.freezes += 1
        self._hold()
        self._kill(leader.process)
        leader.process.start()

    def _terminate(self, node: Node) -> None:
        self._look(node.process)
        code = node.process.terminate()
        if code != 0:
            self.ended_wrongly.append(f"{node.process.name} ended with {code} after SIGTERM: {node.process.log_tail()}")
            node.process.kill()

    def switch_over(self) -> None:
        leader = self._leader()
        self.say(f"terminate {leader.process.name}, the leader")
        self._terminate(leader)
        self._hold()
        leader.process.start()

    def rolling_restart(self) -> None:
        for node in self._rng.sample(self._cluster.nodes, len(self._cluster.nodes)):
            self.say(f"restart {node.process.name}")
            self._terminate(node)
            node.process.start()
            self._cluster.await_in_sync()

    # ---- etcd

    def _etcd(self) -> Process:
        """Its leader mostly, else any member."""
        leader = self._cluster.etcd_leader() if self._rng.random() < 0.7 else None
        return self._rng.choice(self._cluster.etcd) if leader is None else self._cluster.etcd[leader]

    def kill_etcd(self) -> None:
        member = self._etcd()
        self.say(f"kill {member.name}")
        self._kill(member)
        self._hold()
        member.start()

    def freeze_etcd(self) -> None:
        member, seconds = self._etcd(), self._rng.uniform(*FREEZE_S)
        self.say(f"freeze {member.name} for {seconds:.1f} s")
        member.freeze()
        self.freezes += 1
        self._wait(seconds)
        member.thaw()

    def etcd_and_leader(self) -> None:
        """A leader goes while nobody can be made one."""
        leader, members = self._leader(), self._cluster.etcd
        self.say(f"freeze all of etcd, kill {leader.process.name}, the leader")
        for member in members:
            member.freeze()
        self.freezes += 1
        self._kill(leader.process)
        self._hold()
        for member in members:
            member.thaw()
        leader.process.start()

    # ---- the network

    def _cut(self, what: str, pairs: list[tuple[str, str]]) -> None:
        seconds = self._rng.uniform(*FREEZE_S)
        self.say(f"cut {what} for {seconds:.1f} s")
        self._cluster.network.cut(pairs)
        self.cuts += 1
        self._wait(seconds)
        self._cluster.network.heal()

    def cut_leader(self) -> None:
        """From some of those that it talks with, in one direction or both."""
        leader = self._leader()
        followers = [node.address for node in self._cluster.nodes if node is not leader]
        parts = {"all followers": followers, "a follower": followers[:1], "etcd": self._cluster.etcd_addresses, "clients": [HUB]}
        parts["everybody"] = [*followers, *self._cluster.etcd_addresses, HUB]
        name = self._rng.choice(sorted(parts))
        pairs = both_ways([leader.address], parts[name])
        direction = self._rng.choice(["both ways", "to it", "from it"])
        if direction != "both ways":
            pairs = [pair for pair in pairs if (pair[0] == leader.address) == (direction == "from it")]
        self._cut(f"{leader.process.name}, the leader, from {name}, {direction}", pairs)

    def cut_follower(self) -> None:
        node = self._followers()[0]
        others = [n.address for n in self._cluster.nodes if n is not node]
        self._cut(f"{node.process.name}, a follower, from the nodes", both_ways([node.address], others))

    def cut_all(self) -> None:
        nodes = [node.address for node in self._cluster.nodes]
        self._cut("all nodes from each other", both_ways(nodes, nodes))

    def cut_all_from_etcd(self) -> None:
        nodes = [node.address for node in self._cluster.nodes]
        self._cut("all nodes from etcd", both_ways(nodes, self._cluster.etcd_addresses))

    def cut_etcd(self) -> None:
        """A member from the others; alone, it is cut from a node."""
        one = self._rng.choice(self._cluster.etcd_addresses)
        others = [a for a in self._cluster.etcd_addresses if a != one] or [self._rng.choice(self._cluster.nodes).address]
        self._cut(f"etcd at {one} from {', '.join(others)}", both_ways([one], others))

    # ---- disks and clocks

    def fill_disk(self) -> None:
        node = self._rng.choice(self._cluster.nodes)
        self.say(f"fill the disk of {node.process.name}")
        self._look(node.process)
        node.disk.fill()
        give_up = time.monotonic() + DISK_FULL_TIMEOUT_S
        while node.process.alive and time.monotonic() < give_up:
            time.sleep(0.05)  # poll: it ends, since it cannot write its log
        node.disk.free()
        if node.process.exit_code != DISK_FULL_EXIT:
            self.ended_wrongly.append(f"{node.process.name} ended with {node.process.exit_code}: {node.process.log_tail()}")
            node.process.kill()
        node.process.start()

    def lose_disk(self) -> None:
        node = self._rng.choice(self._cluster.nodes)
        at_once = self._rng.random() < 0.5
        self.say(f"lose the disk of {node.process.name}{' and start it at once' * at_once}")
        self._kill(node.process)
        if not at_once:
            self._cluster.await_out_of_sync(node.number)
        node.disk.lose()
        node.process.start()
        # It may still be called in sync, under the incarnation that is lost. The next fault is not to meet that.
        self._wait(LOST_SEEN_S)

    def shift_clock(self) -> None:
        """It stays so: nobody may rely on the time of day."""
        node, seconds = self._rng.choice(self._cluster.nodes), self._rng.choice(CLOCK_JUMPS_S)
        self.say(f"shift the clock of {node.process.name} by {seconds:.0f} s")
        node.clock.shift(seconds)
        self._hold()

    # ---- plans

    def kinds(self) -> dict[str, Callable[[], None]]:
        """All of them, by name."""
        all_kinds = [
            self.kill_leader, self.kill_follower, self.kill_two, self.kill_all, self.freeze_leader, self.freeze_follower,
            self.kill_frozen_leader, self.switch_over, self.rolling_restart, self.kill_etcd, self.freeze_etcd, self.etcd_and_leader,
            self.cut_leader, self.cut_follower, self.cut_all, self.cut_all_from_etcd, self.cut_etcd, self.fill_disk, self.lose_disk,
            self.shift_clock,
        ]  # fmt: skip
        return {kind.__name__: kind for kind in all_kinds}

    def run(self, names: list[str]) -> None:
        """One after another; each begins when the one before is healed."""
        kinds = self.kinds()
        for name in names:
            self._wait(self._rng.uniform(0.2, 1.5))
            try:
                kinds[name]()
                self._cluster.await_in_sync()
            except NotInTime as error:
                raise NotInTime(f"after {name}: {error}") from error
            self.say("all in sync")
        for node in self._cluster.nodes:
            self._look(node.process)
