"""A cluster of real nodes and a real etcd, each process on a host of its own. One thread uses it."""

from __future__ import annotations

import pathlib
import time
import urllib.request
from collections.abc import Callable
from typing import Any

import forebay as fb
import grpc
from forebay._messages import cluster as wire
from network import Network
from processes import ETCD_PEER_PORT, ETCD_PORT, GRPC_PORT, HTTP_PORT, Clock, Disk, Process

NODES = 3
ASK_S, LOOK_S = 0.5, 0.05
START_TIMEOUT_S, SYNC_TIMEOUT_S = 40.0, 60.0
DISK_SIZE = "384m"
GET_VIEW = "/forebay.v1.ClusterService/Get"


class NotInTime(Exception):
    """What a healed cluster owes did not come."""


class Node:
    def __init__(self, number: int, address: str, process: Process, disk: Disk, clock: Clock) -> None:
        self.number, self.address, self.process, self.disk, self.clock = number, address, process, disk, clock
        self.target = f"{address}:{GRPC_PORT}"
        options = [("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 300), ("grpc.enable_http_proxy", 0)]
        self._channel = grpc.insecure_channel(self.target, options)
        self._get = self._channel.unary_unary(GET_VIEW, lambda m: m.encode(), wire.ClusterView.decode)

    def view(self) -> wire.ClusterView | None:
        """The cluster as it sees it; None if it does not answer."""
        try:
            return self._get(wire.GetClusterRequest(), timeout=ASK_S)
        except grpc.RpcError:
            return None

    def close(self) -> None:
        self._channel.close()


class Cluster:
    def __init__(self, network: Network, programs: pathlib.Path, folder: pathlib.Path, etcd_members: int, config: dict[str, str]) -> None:
        self.network, self.folder = network, folder
        self.etcd_addresses = [network.host(f"etcd-{i}", 101 + i) for i in range(etcd_members)]
        self.etcd = [self._member(i) for i in range(etcd_members)]
        self.nodes = [self._node(number, programs, config) for number in range(1, NODES + 1)]
        self.epochs: set[int] = set()  # of all reigns that were seen

    def _member(self, index: int) -> Process:
        def url(i: int, port: int) -> str:
            return f"http://{self.etcd_addresses[i]}:{port}"

        peers = ",".join(f"m{i}={url(i, ETCD_PEER_PORT)}" for i in range(len(self.etcd_addresses)))
        command = [
            "etcd", f"--name=m{index}", f"--data-dir={self.folder}/etcd-{index}",
            f"--listen-client-urls={url(index, ETCD_PORT)}", f"--advertise-client-urls={url(index, ETCD_PORT)}",
            f"--listen-peer-urls={url(index, ETCD_PEER_PORT)}", f"--initial-advertise-peer-urls={url(index, ETCD_PEER_PORT)}",
            f"--initial-cluster={peers}", "--heartbeat-interval=50", "--election-timeout=500",
        ]  # fmt: skip
        name = f"etcd-{index}"
        return Process(name, self.network.within(name, command), self.folder / f"{name}.log")

    def _node(self, number: int, programs: pathlib.Path, config: dict[str, str]) -> Node:
        name = f"node-{number}"
        address = self.network.host(name, number)
        disk = Disk(self.folder / name, DISK_SIZE)
        all_config = {
            "listen.grpc": f"{address}:{GRPC_PORT}", "listen.http": f"{address}:{HTTP_PORT}", "listen.unix": "", "listen.allow_remote": "true",
            "storage.directory": str(disk.data), "storage.segment_directory": str(self.folder / "store"),
            "cluster.etcd": ",".join(f"{a}:{ETCD_PORT}" for a in self.etcd_addresses), "cluster.node": str(number),
            "cluster.advertise": f"{address}:{GRPC_PORT}", **config,
        }  # fmt: skip
        command = self.network.within(name, [str(programs / "bufferd"), *(f"--{key}={value}" for key, value in all_config.items())])
        clock = Clock(programs / "chaos_clock.so", self.folder / f"{name}.clock")
        process = Process(name, command, self.folder / f"{name}.log", clock.env)
        return Node(number, address, process, disk, clock)

    def etcd_leader(self) -> int | None:
        """The member that leads the others, as it says itself."""
        for index, address in enumerate(self.etcd_addresses):
            try:
                with urllib.request.urlopen(f"http://{address}:{ETCD_PORT}/metrics", timeout=ASK_S) as page:
                    if b"\netcd_server_is_leader 1\n" in page.read():
                        return index
            except OSError:
                continue
        return None

    @property
    def seeds(self) -> str:
        return ",".join(node.target for node in self.nodes)

    def start(self) -> None:
        for process in [*self.etcd, *(node.process for node in self.nodes)]:
            process.start()
        self.await_in_sync(START_TIMEOUT_S)
        self.await_leader(START_TIMEOUT_S)

    def views(self) -> list[wire.ClusterView]:
        found = [view for node in self.nodes if node.process.alive and not node.process.frozen and (view := node.view())]
        self.epochs.update(view.leader_epoch for view in found if view.leader_epoch)
        return found

    def leader(self) -> Node | None:
        """As the nodes say that have heard of the newest reign."""
        newest = max(self.views(), key=lambda view: view.leader_epoch, default=None)
        return self.nodes[newest.leader - 1] if newest is not None and newest.leader else None

    def _await(self, what: str, timeout: float, good: Callable[[], Any]) -> Any:
        give_up = time.monotonic() + timeout
        while True:
            result = good()
            if result:
                return result
            if time.monotonic() > give_up:
                raise NotInTime(f"{what} not within {timeout:.0f} s: {self.views()}")
            time.sleep(LOOK_S)  # poll: the nodes agree

    def await_leader(self, timeout: float = SYNC_TIMEOUT_S) -> Node:
        """One that serves."""

        def serving() -> Node | None:
            node = self.leader()
            if node is None or not node.process.alive or node.process.frozen:
                return None
            run = fb.connect(node.target, timeout=ASK_S)
            try:
                run.status()
            except fb.ForebayError:
                return None
            finally:
                run.close(0.1)
            return node

        leader: Node = self._await("a leader", timeout, serving)
        return leader

    def await_in_sync(self, timeout: float = SYNC_TIMEOUT_S) -> None:
        """Every node is there and says of the same leader that every machine has every node in sync."""
        wanted = {node.number for node in self.nodes}

        def all_in_sync() -> bool:
            views = self.views()
            whole = all(v.leader and v.machines and all(wanted <= set(m.in_sync) for m in v.machines) for v in views)
            return whole and len(views) == len(wanted) and len({(v.leader, v.leader_epoch) for v in views}) == 1

        self._await("all nodes in sync", timeout, all_in_sync)

    def await_out_of_sync(self, number: int, timeout: float = SYNC_TIMEOUT_S) -> None:
        self._await(
            f"{number} out of sync",
            timeout,
            lambda: any(v.machines and not any(number in m.in_sync for m in v.machines) for v in self.views()),
        )

    def close(self) -> None:
        for process in [*(node.process for node in self.nodes), *self.etcd]:
            process.kill()
        for node in self.nodes:
            node.close()
            node.disk.unmount()

    def keep_disks(self) -> None:
        for node in self.nodes:
            node.disk.save(self.folder / f"{node.process.name}.data")
