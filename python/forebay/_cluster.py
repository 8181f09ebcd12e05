"""Which node of a cluster to call: what the nodes say of who leads, and a thread that listens to one of them.

The thread listens to a node that does not lead, if there is one: a frozen leader gives no error. It begins with a
process's first call, and ends at once if the daemon has no cluster.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import random
import threading
import time
from dataclasses import dataclass
from typing import Any, Callable, Iterator, List, Optional, Sequence, Set, Tuple

import grpc

from . import _errors
from ._messages import cluster as wire

log = logging.getLogger("forebay")
SERVICE = "/forebay.v1.ClusterService/"
WATCH = SERVICE + "Watch"
# Heartbeats come each second.
SILENCE_MAX_S = 2.0
FIRST_SILENCE_S = 0.5
# Between rounds of all nodes, none of which can be heard; in the end less often.
ROUND_PAUSE_S, ROUND_PAUSE_MAX_S, LATE_PAUSE_S = 0.05, 0.5, 2.0
LATE_ROUNDS = 30
# When calls to the leader fail so long, the node that calls it the leader is not believed alone.
BELIEVED_S = 1.0
# How often nodes that failed are tried again while the leader itself is listened to.
FORGIVE_S = 10.0


class NotOfThisCluster(Exception):
    """A node that has no place in the cluster that was met first."""


def parse_seeds(target: str) -> List[str]:
    """The entries of "a:1, b:2,unix:/c"; ValueError if there is none, or an empty one."""
    seeds = [entry.strip() for entry in target.split(",")]
    if not all(seeds):
        raise ValueError(
            f"target is {target!r}: empty, or with an empty entry; it must be HOST:PORT or unix:/path, "
            "or several nodes of a cluster with commas"
        )
    return list(dict.fromkeys(seeds))


def refusal(error: grpc.RpcError) -> Tuple[str, int]:
    """The leader that a node named when it refused a call, and its epoch; "" if it named none."""
    metadata = error.trailing_metadata() if hasattr(error, "trailing_metadata") else None
    found = {key: value for key, value in metadata or ()}
    epoch = str(found.get("forebay-leader-epoch", ""))
    return str(found.get("forebay-leader", "")), int(epoch) if epoch.isdecimal() else 0


@dataclass
class _Node:
    address: str
    seed: bool = False
    member: bool = False  # as of the newest view
    up: bool = True
    failures: int = 0  # watches in a row
    said: str = ""


class Route:
    """Where calls go, by what nodes say and how calls fare. Pure; not thread-safe.

    Of two who disagree about the leader the one with the higher epoch is right, so that a node that is behind leads
    nobody back.
    """

    def __init__(self, seeds: Sequence[str], salt: int) -> None:
        self._nodes = [_Node(seed, seed=True) for seed in seeds]
        self._salt = salt  # spreads clients over the nodes that can be listened to
        self.current = seeds[0]  # the leader, or while none is known the node whose turn it is
        self.leader = ""
        self.revision = 1  # rises when calls that failed have a reason to be repeated at once
        self.alone = False
        self._cluster = 0
        self._epoch = 0

    @property
    def addresses(self) -> List[str]:
        return [node.address for node in self._nodes]

    def _find(self, address: str) -> _Node:
        for node in self._nodes:
            if node.address == address:
                return node
        self._nodes.append(_Node(address))
        return self._nodes[-1]

    def take_view(self, source: str, view: wire.ClusterView) -> None:
        if view.cluster == 0:
            if self._cluster:
                raise NotOfThisCluster("is a daemon without a cluster")
            self.alone = True
            if self.current != source:
                self.current = source
                self.revision += 1
            return
        if self._cluster not in (0, view.cluster):
            raise NotOfThisCluster("is of another cluster")
        self._cluster = view.cluster
        for node in self._nodes:
            node.member = False
        leader = ""
        for told in view.nodes:
            if not told.address:
                continue
            node = self._find(told.address)
            node.member, node.up = True, told.up
            if told.id == view.leader and view.leader:
                leader = told.address
        self._nodes = [n for n in self._nodes if n.member or n.seed or n.address in (self.current, source)]
        # A socket of this host is the shorter way to the same node.
        if source.startswith("unix:") and view.node == view.leader and leader:
            leader = source
        node = self._find(source)
        node.failures = 0
        node.said = f"says that {leader} leads" if leader else "knows no leader"
        if view.leader_epoch < self._epoch:
            return
        if leader:
            self._adopt(leader, view.leader_epoch)
        else:  # calls stay where they are until there is a better place
            self.leader, self._epoch = "", view.leader_epoch

    def take_refusal(self, source: str, leader: str, epoch: int, said: str) -> None:
        self._find(source).said = said
        news = epoch > self._epoch or (epoch == self._epoch and not self.leader)
        if leader and leader != source and news:
            self._find(leader)
            self._adopt(leader, epoch)
        else:
            self._go_round(source)

    def take_failure(self, source: str, said: str) -> None:
        self._find(source).said = said
        self._go_round(source)

    def _adopt(self, leader: str, epoch: int) -> None:
        if (leader, epoch) != (self.leader, self._epoch):
            self.leader = self.current = leader
            self._epoch = epoch
            self.revision += 1

    def _go_round(self, source: str) -> None:
        """The next node's turn, if none is known that leads."""
        if self.leader or self.alone or source != self.current:
            return
        addresses = self.addresses
        self.current = addresses[(addresses.index(source) + 1) % len(addresses)]

    def next_watch(self) -> str:
        """A node that does not lead, and that has failed the least."""

        def rank(node: _Node) -> Tuple[int, int, int]:
            if node.address == self.current:
                kind = 2
            elif self._cluster and not node.member:
                kind = 3  # perhaps another name of a member
            else:
                kind = 0 if node.up else 1
            return node.failures, kind, hash((self._salt, node.address))

        return min(self._nodes, key=rank).address

    def watch_failed(self, address: str, said: str) -> None:
        node = self._find(address)
        node.failures += 1
        node.said = said

    def watches_leader(self, address: str) -> bool:
        """Another node than the leader would be a better one to listen to."""
        return address == self.leader and self.next_watch() != address

    def forgive(self) -> None:
        """Nodes that failed are worth a try again."""
        for node in self._nodes:
            node.failures = 0

    def asked(self) -> str:
        """What each node said last, for people; empty while there is but one."""
        if len(self._nodes) < 2:
            return ""
        return ", ".join(f"{node.address} ({node.said or 'not asked yet'})" for node in self._nodes)


class _Nap:
    """A pause that a scope's cancellation ends, and a move."""

    def __init__(self) -> None:
        self.over = threading.Event()

    def cancel(self) -> None:
        self.over.set()


class Cluster:
    """The route of one process, and the thread that keeps it true. Thread-safe."""

    def __init__(
        self, seeds: Sequence[str], open_watch: Callable[[str, bytes], Any], moved: Callable[[str], None]
    ) -> None:
        """`open_watch(address, request)` begins a Watch at a node; `moved(address)` is told of each new leader."""
        self._open_watch, self._moved = open_watch, moved
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._route = Route(seeds, random.getrandbits(32))
        self._naps: Set[_Nap] = set()
        self._thread: Optional[threading.Thread] = None
        self._watch: Any = None  # the call of the moment
        self._closing = False
        self._failures = 0  # watches in a row, on any node
        self._failing_since: Optional[float] = None  # of the leader, to calls
        self._forgiven = -FORGIVE_S
        self.heard = False  # some node has told of itself

    @property
    def current(self) -> Tuple[str, int]:
        """The node to call now, and the revision of what is known: for `pause`, should the call fail."""
        with self._lock:
            if self._thread is None and not self._closing and not self._route.alone:
                self._thread = threading.Thread(target=self._run, name="forebay-cluster", daemon=True)
                self._thread.start()
            return self._route.current, self._route.revision

    @property
    def several(self) -> bool:
        with self._lock:
            return not self._route.alone and len(self._route.addresses) > 1

    def be_alone(self) -> None:
        """It is known that there is no cluster."""
        with self._lock:
            self._route.alone = True

    def asked(self) -> str:
        with self._lock:
            return "" if self._route.alone else self._route.asked()

    def failed(self, address: str, error: grpc.RpcError) -> None:
        """A call was refused with UNAVAILABLE, or did not get through."""
        leader, epoch = refusal(error)
        said = error.details() if hasattr(error, "details") else str(error)
        with self._changing():
            if leader:
                self._route.take_refusal(address, leader, epoch, said or "")
            else:
                self._route.take_failure(address, said or "")
            if self._route.leader and address == self._route.current:
                now = time.monotonic()
                since = self._failing_since = self._failing_since or now
                if now - since > BELIEVED_S and self._watch is not None:
                    self._failing_since = now
                    self._watch.cancel()

    def answered(self) -> None:
        self._failing_since = None

    def pause(self, seconds: float, scope: Any, since: int) -> bool:
        """Sleeps, but no longer than until there is a better place for calls than at revision `since`.

        Returns early, and True, when the scope is cancelled.
        """
        nap = _Nap()
        with self._lock:
            if self._route.revision > since:
                return bool(scope.cancelled)
            self._naps.add(nap)
        with scope.holding(nap):
            nap.over.wait(max(0.0, min(seconds, threading.TIMEOUT_MAX)))
        with self._lock:
            self._naps.discard(nap)
        return bool(scope.cancelled)

    def close(self) -> None:
        with self._lock:
            self._closing = True
            if self._watch is not None:
                self._watch.cancel()
            self._changed.notify_all()
            for nap in self._naps:
                nap.over.set()

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        """With the lock; afterwards those are told whom it concerns."""
        with self._lock:
            before = self._route.revision
            yield
            moved = self._route.revision != before
            leader = self._route.current
            if moved:
                self._failing_since = None
        if not moved:
            return
        self._moved(leader)
        # Who is woken finds all in its new place.
        with self._lock:
            for nap in self._naps:
                nap.over.set()

    # ---- the thread

    def _run(self) -> None:
        try:
            while self._follow_one():
                pass
        except Exception:  # calls go on, and go where they are sent by refusals
            log.exception("who leads the cluster is not watched any more")

    def _follow_one(self) -> bool:
        """Listens to one node until that ends; False if that was the last."""
        with self._lock:
            if self._closing or self._route.alone:
                return False
            address = self._route.next_watch()
            rounds = self._failures // len(self._route.addresses)
        why = ""
        try:
            self._follow(address, min(SILENCE_MAX_S, FIRST_SILENCE_S * 2 ** min(rounds, 10)))
        except NotOfThisCluster as error:
            why = str(error)
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.UNIMPLEMENTED:  # older than clusters are
                with self._changing():
                    self._route.take_view(address, wire.ClusterView())
            else:
                why = error.details() or str(error.code())
        except (TimeoutError, ValueError, _errors.Cancelled) as error:
            why = str(error)
        finally:
            with self._lock:
                self._watch = None
        with self._changed:
            if self._closing or self._route.alone:
                return False
            if not why:
                return True
            self._route.watch_failed(address, why)
            self._failures += 1
            rounds = self._failures // len(self._route.addresses)
            if rounds:
                most = LATE_PAUSE_S if rounds > LATE_ROUNDS else ROUND_PAUSE_MAX_S
                self._changed.wait_for(lambda: self._closing, min(most, ROUND_PAUSE_S * 2 ** min(rounds - 1, 10)))
            return not self._closing

    def _follow(self, address: str, silence: float) -> None:
        """Returns when another node is to be listened to, or none any more."""
        call = self._open_watch(address, wire.WatchClusterRequest().encode())
        with self._lock:
            self._watch = call
            if self._closing:
                call.cancel()
        heard: "queue.SimpleQueue[Any]" = queue.SimpleQueue()
        reader = threading.Thread(target=_read, args=(call, heard), name="forebay-cluster-watch", daemon=True)
        reader.start()
        try:
            while True:
                try:
                    body = heard.get(timeout=silence)
                except queue.Empty:
                    raise TimeoutError(f"no word for {silence:g} s") from None
                if isinstance(body, BaseException):
                    raise body
                if not self._take(address, wire.ClusterNews.decode(body)):
                    return
                silence = SILENCE_MAX_S
        finally:
            call.cancel()

    def _take(self, address: str, news: wire.ClusterNews) -> bool:
        """False: listen no more to this node."""
        with self._changing():
            self.heard = True
            self._failures = 0
            if news.view is not None:
                self._route.take_view(address, news.view)
            if address == self._route.current and time.monotonic() - self._forgiven > FORGIVE_S:
                self._forgiven = time.monotonic()
                self._route.forgive()
            go_on = not (self._closing or self._route.alone or self._route.watches_leader(address))
        return go_on


def _read(call: Any, heard: "queue.SimpleQueue[Any]") -> None:
    try:
        for body in call:
            heard.put(body)
        heard.put(TimeoutError("the watch was ended"))
    except Exception as error:  # the other thread decides
        heard.put(error)
