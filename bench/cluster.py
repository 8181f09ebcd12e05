"""A cluster for the measures: etcd and three nodes that share a store, and what they say of who leads."""

from __future__ import annotations

import contextlib
import pathlib
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import grpc
from harness import ROOT, Failed, NotBuilt, Programs, Server, cpu_seconds_of, die_with_parent, free_port, wait_for_port

sys.path.insert(0, str(ROOT / "python"))
from forebay._messages import cluster as wire  # noqa: E402

SETTLE_SECONDS = 60.0
LOOK_SECONDS = 0.05
ASK_SECONDS = 0.5


class Node:
    """One bufferd of the cluster; may be ended and started again at the same address."""

    def __init__(self, number: int, words: list[str], address: str, http: str, folder: pathlib.Path):
        self.number, self.words, self.address, self.http, self.folder = number, words, address, http, folder
        self.log = folder.parent / f"node-{number}.log"
        self.process: subprocess.Popen | None = None

    @property
    def pid(self) -> int:
        return self.process.pid

    def start(self) -> None:
        with self.log.open("a") as log:
            self.process = subprocess.Popen(self.words, stdout=log, stderr=log, preexec_fn=die_with_parent)
        wait_for_port(self.address, self.process, SETTLE_SECONDS)

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def wait(self) -> int:
        return self.process.wait(SETTLE_SECONDS)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def cpu_seconds(self) -> float:
        return cpu_seconds_of(self.pid)

    def server(self) -> Server:
        return Server(self.address, self.pid, self.http)

    def view(self) -> wire.ClusterView | None:
        """What the node says of the cluster; None if it does not answer."""
        with grpc.insecure_channel(self.address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
            get = channel.unary_unary("/forebay.v1.ClusterService/Get", request_serializer=wire.GetClusterRequest.encode,
                                      response_deserializer=wire.ClusterView.decode)
            try:
                return get(wire.GetClusterRequest(), timeout=ASK_SECONDS)
            except grpc.RpcError:
                return None


class Cluster:
    def __init__(self, nodes: list[Node]):
        self.nodes = nodes

    @property
    def seeds(self) -> str:
        return ",".join(node.address for node in self.nodes)

    def view(self) -> wire.ClusterView | None:
        """Of the node that leads, or None while none says that it does."""
        for node in self.nodes:
            view = node.view()
            if view is not None and view.leader == node.number:
                return view
        return None

    def leader(self) -> Node:
        view = self.await_view(lambda view: True, "a node leads")
        return self.nodes[view.leader - 1]

    def await_in_sync(self, but: Node | None = None, seconds: float = SETTLE_SECONDS) -> None:
        """Every node has every machine, by the leader's word; or all but one."""
        wanted = {node.number for node in self.nodes if node is not but}
        self.await_view(lambda view: view.machines and all(wanted <= set(m.in_sync) for m in view.machines),
                        f"nodes {sorted(wanted)} are in sync", seconds)

    def await_out_of_sync(self, node: Node) -> None:
        self.await_view(lambda view: all(node.number not in m.in_sync for m in view.machines),
                        f"node {node.number} is out of sync")

    def await_view(self, good: Callable, what: str, seconds: float = SETTLE_SECONDS) -> wire.ClusterView:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            view = self.view()
            if view is not None and good(view):
                return view
            time.sleep(LOOK_SECONDS)
        raise Failed(f"after {seconds:.0f} s it is not so that {what}:\n{self.logs()}")

    def logs(self) -> str:
        return "\n".join(f"{node.log.name}: {node.log.read_text()[-2000:]}" for node in self.nodes)


@contextlib.contextmanager
def etcd(folder: pathlib.Path) -> Iterator[str]:
    """One member, with its data in a folder; its address. The cluster asks it for little, so one is enough."""
    client, peer = (f"127.0.0.1:{free_port()}" for _ in range(2))
    words = ["etcd", "--name=m0", f"--data-dir={folder}/etcd", f"--listen-client-urls=http://{client}",
             f"--advertise-client-urls=http://{client}", f"--listen-peer-urls=http://{peer}",
             f"--initial-advertise-peer-urls=http://{peer}", f"--initial-cluster=m0=http://{peer}"]
    try:
        with (folder / "etcd.log").open("w") as log:
            process = subprocess.Popen(words, stdout=log, stderr=log, preexec_fn=die_with_parent)
    except FileNotFoundError:
        raise NotBuilt("there is no program etcd: install the package etcd-server (./dev setup)") from None
    try:
        wait_for_port(client, process, SETTLE_SECONDS)
        yield client
    finally:
        process.kill()
        process.wait()


@contextlib.contextmanager
def cluster(programs: Programs, folder: pathlib.Path, nodes: int = 3, **config: object) -> Iterator[Cluster]:
    """Nodes with default settings but for the entries given, in sync; gone afterwards."""
    with contextlib.ExitStack() as stack:
        address = stack.enter_context(etcd(folder))
        made = []
        for number in range(1, nodes + 1):
            grpc_address, http = (f"127.0.0.1:{free_port()}" for _ in range(2))
            entries = {"listen.grpc": grpc_address, "listen.unix": "", "listen.http": http, "cluster.etcd": address,
                       "cluster.node": number, "storage.directory": folder / f"node-{number}",
                       "storage.segment_directory": folder / "store", **config}
            words = [programs.path("bufferd"), *(f"--{name}={value}" for name, value in entries.items())]
            made.append(Node(number, words, grpc_address, http, folder / f"node-{number}"))
        for node in made:
            stack.callback(lambda node=node: node.process is not None and node.kill())
            node.start()
        together = Cluster(made)
        together.await_in_sync()
        yield together


class SteadyLoad:
    """buffer-bench steady: when each assignment and each micro-batch came, by the monotonic clock."""

    EVENT = re.compile(r"(assignment|fetch) ([\d.]+)")

    def __init__(self, programs: Programs, seeds: str, folder: pathlib.Path):
        words = [programs.path("buffer-bench"), "steady", f"--target={seeds}"]
        self.command = programs.readable(words)
        self._events = folder / "events"
        self._errors = folder / "steady.log"
        with self._events.open("w") as out, self._errors.open("w") as errors:
            self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=out, stderr=errors,
                                             preexec_fn=die_with_parent)

    def events(self, what: str) -> list[float]:
        return [float(at) for name, at in self.EVENT.findall(self._events.read_text()) if name == what]

    def await_after(self, what: str, moment: float, seconds: float = SETTLE_SECONDS, count: int = 1) -> list[float]:
        """All events of the kind, once `count` of them came after the moment."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if self._process.poll() is not None:
                raise Failed(f"{self.command} ended with {self._process.returncode}: {self._errors.read_text()[-2000:]}")
            events = self.events(what)
            if sum(at > moment for at in events) >= count:
                return events
            time.sleep(LOOK_SECONDS)
        raise Failed(f"{self.command}: no {what} for {seconds:.0f} s")

    def close(self) -> None:
        self._process.stdin.close()
        try:
            code = self._process.wait(SETTLE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        if code != 0:
            raise Failed(f"{self.command} ended with {code}: {self._errors.read_text()[-2000:]}")

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
