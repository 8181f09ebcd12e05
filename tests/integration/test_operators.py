"""buffer-ctl's commands for a cluster, against etcd and three real nodes: each once, with its effect."""

import json
import os
import pathlib
import socket
import subprocess
import sys
import time
import types
import urllib.request
from concurrent import futures

import grpc
import pytest

from forebay._messages import cluster as wire

ROOT = pathlib.Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT / "tools"))
import cluster as dev_cluster  # noqa: E402

BIN = pathlib.Path(os.environ.get("FOREBAY_BIN", ROOT / "build" / "release" / "bin"))
SLOWNESS = int(os.environ.get("FOREBAY_SLOWNESS", "1"))
PATIENCE_S = 60 * SLOWNESS
LOOK_S = 0.1


def free_port_block(count):
    """The first of so many free ports in a row, and of the two that are 100 above."""
    for base in range(21_000, 31_000, 200):
        try:
            for port in [*range(base, base + count), base + 100, base + 101]:
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
            return base
        except OSError:
            continue
    raise AssertionError("no free ports")


def await_that(what, look):
    until = time.monotonic() + PATIENCE_S
    while True:
        seen = look()
        if seen:
            return seen
        assert time.monotonic() < until, f"not in time: {what}"
        time.sleep(LOOK_S)  # poll: what the caller awaits


class Cluster:
    """As ./dev cluster starts it, but that nothing is started again by itself."""

    def __init__(self, directory, nodes=3):
        self.port = free_port_block(2 * nodes)
        args = types.SimpleNamespace(
            port=self.port, nodes=nodes, shards=2, bufferd=BIN / "bufferd", entries=["--shutdown.drain_ms=1s"]
        )
        (directory / "rollouts").mkdir()
        self.etcd, *self.nodes = dev_cluster.programs(args, directory)
        self.etcd_address = f"127.0.0.1:{self.port + 100}"

    def address(self, node):
        return f"127.0.0.1:{self.port + 2 * (node - 1)}"

    def addresses(self):
        return ",".join(self.address(node) for node in self.up())

    def start(self):
        for program in [self.etcd, *self.nodes]:
            program.start()
        self.settle()

    def stop(self):
        for program in [*self.nodes, self.etcd]:
            if program.process is not None:
                program.process.kill()
                program.process.wait()

    def kill(self, node):
        self.nodes[node - 1].process.kill()
        self.nodes[node - 1].process.wait()

    def revive(self, node):
        self.nodes[node - 1].start()

    def run(self, *words, at=None, to=None, code=0, etcd=False, timeout=30 * SLOWNESS):
        """`at`: a node; `to`: addresses; without both all nodes that are up are given."""
        to = ["--etcd", self.etcd_address] if etcd else ["--address", to or (self.address(at) if at else self.addresses())]
        command = [str(BIN / "buffer-ctl"), *to, "--timeout", str(timeout), *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, stdin=subprocess.DEVNULL)
        assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def await_status(self, code, *texts, at=None):
        """Waits until `status` says all of it: nodes hear of what happened one after another."""
        to = self.address(at) if at else self.addresses()
        command = [str(BIN / "buffer-ctl"), "--address", to, "--timeout", str(30 * SLOWNESS), "status"]

        def says():
            done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, stdin=subprocess.DEVNULL)
            return done.returncode == code and all(text in done.stdout for text in texts)

        await_that(f"status with {code} says {texts}", says)

    def up(self):
        return [i for i, program in enumerate(self.nodes, 1) if program.process.poll() is None]

    def look(self, etcd=False):
        """The state that the coordinator has, and what the nodes say."""
        to = ["--etcd", self.etcd_address] if etcd else ["--address", self.addresses()]
        command = [str(BIN / "buffer-ctl"), *to, "-o", "json", "nodes"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def leader(self):
        seen = self.look()
        leads = [node["node"] for node in seen["nodes"] if node["leads"]] if seen else []
        return leads[0] if leads and leads[0] == seen["state"]["leader"] else None

    def settle(self):
        """Waits until one node leads, and every machine has all its replicas in sync on nodes that are there."""

        def settled():
            seen = self.look()
            if seen is None or self.leader() is None:
                return False
            state = seen["state"]
            machines = state["machines"]
            return (
                len(machines) == 4
                and all(len(m["in_sync"]) == len(self.nodes) for m in machines)
                and all(node["present"] for node in state["nodes"])
                and not any(r["leaving"] for m in machines for r in m["replicas"])
            )

        await_that("all replicas are in sync", settled)

    def events(self):
        return [f"{e['who']}: {e['what']} ({e['why']})" for e in self.look()["state"]["events"]]


@pytest.fixture(scope="module")
def started(tmp_path_factory):
    cluster = Cluster(tmp_path_factory.mktemp("cluster"))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def cluster(started):
    """As it should be, whatever the test before has left."""
    for node in range(1, len(started.nodes) + 1):
        if node not in started.up():
            started.revive(node)
    await_that("a node answers", started.look)
    started.run("failover", "resume")
    for node in range(1, len(started.nodes) + 1):
        started.run("undrain", node)
    started.settle()
    return started


def others(cluster):
    leader = cluster.leader()
    return leader, [node for node in (1, 2, 3) if node != leader]


def test_any_node_tells_of_the_cluster(cluster):
    leader, followers = others(cluster)
    for node in (1, 2, 3):
        shards = cluster.run("shards", at=node)
        for machine in ("ledger", "shard-0", "shard-1", "contents"):
            assert machine in shards
        assert "?" not in shards
        nodes = cluster.run("nodes", at=node)
        assert nodes.count("follows") == 2 and nodes.count("leads") == 1
        status = cluster.run("status", at=node)
        assert status.startswith("OK\n")
        assert f"node {node} answers, node {leader} leads" in status
        assert "can lose 1 node (1 as configured)" in status
    assert any("begins the cluster" in event for event in cluster.events())
    assert "leads, epoch" in cluster.run("events", at=followers[0])


def test_status_asks_on_past_a_node_that_knows_no_leader_yet(cluster):
    just_begun = grpc.server(futures.ThreadPoolExecutor(max_workers=1))
    view = wire.ClusterView(cluster=1, run=1, revision=1, node=9, nodes=[wire.ClusterNode(id=9)])
    get = grpc.unary_unary_rpc_method_handler(lambda request, context: view.encode())
    just_begun.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("forebay.v1.ClusterService", {"Get": get})])
    alone = f"127.0.0.1:{just_begun.add_insecure_port('127.0.0.1:0')}"
    just_begun.start()
    try:
        status = cluster.run("status", to=f"{alone},{cluster.addresses()}")
        assert f"node {cluster.leader()} leads" in status
        assert "no node leads" in cluster.run("status", to=alone, code=20)
    finally:
        just_begun.stop(None).wait()


def test_a_switchover_goes_where_it_is_told(cluster):
    leader, (first, second) = others(cluster)
    said = cluster.run("switchover", "--to", second, "--why", "a test", at=first)
    assert f"node {second} leads" in said
    assert cluster.leader() == second
    assert any(f"switchover from node {leader} to node {second} begins (a test)" in e for e in cluster.events())
    assert "leads already" in cluster.run("switchover", "--to", second)
    cluster.settle()
    cluster.run("switchover")
    assert cluster.leader() not in (None, second)
    assert "there is no node 9" in cluster.run("switchover", "--to", 9, code=1)


def test_while_paused_nobody_takes_over_until_an_operator_says_who(cluster):
    leader, (first, second) = others(cluster)
    assert "--why is required" in cluster.run("failover", "pause", code=2)
    cluster.run("failover", "pause", "--why", "maintenance")
    cluster.await_status(10, "automatic failover is paused by", at=first)
    cluster.kill(leader)
    # Its presence ends long after the others would have suspected it.
    gone = await_that(
        "the killed node is not there",
        lambda: (s := cluster.look()) and not s["state"]["leader_present"] and s["state"],
    )
    assert gone["leader"] == leader
    assert "no node leads" in cluster.run("status", at=first, code=20) or cluster.look()["state"]["leader"] == leader
    assert "is not there" in cluster.run("failover", "--to", leader, at=first, code=1)
    assert f"node {second} leads" in cluster.run("failover", "--to", second, "--why", "its host is gone", at=first)
    assert cluster.leader() == second
    cluster.run("failover", "resume")
    assert any("automatic failover goes on" in event for event in cluster.events())


def test_when_it_is_not_paused_another_node_takes_over(cluster):
    leader, (first, second) = others(cluster)
    cluster.kill(leader)
    await_that("another node leads", lambda: cluster.leader() in (first, second))
    # Its presence ends last.
    cluster.await_status(10, "DEGRADED: can lose 0 nodes now", f"node {leader} is down", at=first)


def test_a_drained_node_hands_over_and_gets_nothing_until_it_is_undrained(cluster):
    leader, (first, second) = others(cluster)
    cluster.run("drain", leader, "--why", "a new disk", at=first)
    await_that("another node leads", lambda: cluster.leader() in (first, second))
    # The one that led begins anew, and knows nothing of the others for a moment.
    cluster.await_status(10, f"node {leader} is drained")
    cluster.settle()
    assert "drained" in cluster.run("nodes")
    assert "drain node" in cluster.run("replica", "remove", first, code=1)
    cluster.run("replica", "remove", leader, "--machine", "shard-0")

    def replicas():
        return next(m for m in cluster.look()["state"]["machines"] if m["name"] == "shard-0")["replicas"]

    await_that("its replica is gone", lambda: leader not in [r["node"] for r in replicas()])
    assert "is drained" in cluster.run("replica", "add", leader, code=1)
    cluster.run("undrain", leader)
    cluster.run("replica", "add", leader, "--machine", "shard-0")
    assert "all replicas are where they should be, and in sync" in cluster.run("rebalance")
    assert leader in [r["node"] for r in replicas()]


def test_an_unsafe_failover_names_the_loss_and_wants_the_name(cluster):
    leader, (first, second) = others(cluster)
    assert "--unsafe needs --to" in cluster.run("failover", "--unsafe", code=2)
    said = cluster.run("failover", "--unsafe", "--to", first, code=1)
    assert "UNSAFE" in said and "nothing was changed" in said and "is in sync, nothing is lost" in said
    assert cluster.leader() == leader
    assert f"node {first} leads" in cluster.run("failover", "--unsafe", "--to", first, "--yes", "forebay")
    assert cluster.leader() == first
    assert any("UNSAFE failover of all machines" in event for event in cluster.events())


def test_without_any_node_etcd_alone_is_asked_and_told(cluster):
    for node in (1, 2, 3):
        cluster.kill(node)
    await_that(
        "no node is there", lambda: not any(n["present"] for n in cluster.look(etcd=True)["state"]["nodes"])
    )
    assert cluster.run("nodes", etcd=True).count("down") == 3
    assert "shard-1" in cluster.run("shards", etcd=True)
    cluster.run("failover", "pause", "--why", "all is down", etcd=True)
    led = cluster.look(etcd=True)["state"]["leader"]
    to = next(m for m in cluster.look(etcd=True)["state"]["machines"] if m["name"] == "ledger")["in_sync"]
    to = next(node for node in to if node != led)
    # Named, it leads as soon as it is up, though automatic failover is paused.
    said = cluster.run("failover", "--to", to, etcd=True, code=1, timeout=2)
    assert f"node {to} is named, and does not lead yet" in said
    for node in (1, 2, 3):
        cluster.revive(node)
    await_that("the named node leads", lambda: cluster.leader() == to)
    assert "etcd knows no cluster 'other'" in cluster.run("--cluster", "other", "nodes", etcd=True, code=1)


def test_the_doctor_finds_nothing_and_then_a_node_that_is_gone(cluster):
    said = json.loads(cluster.run("-o", "json", "doctor", code=cluster_code(cluster)))
    texts = [f["what"] for f in said["findings"] if f["grade"] == "good"]
    assert "all nodes share one store of rollouts" in texts
    assert "versions and configurations agree" in texts
    assert not [f for f in said["findings"] if f["grade"] == "bad"]
    leader, (first, _) = others(cluster)
    cluster.kill(first)
    said = cluster.run("doctor", at=leader, code=20)
    assert f"BAD   node {first}" in said and "what to do: start it" in said
    assert not list(pathlib.Path(cluster.nodes[0].log.parent / "rollouts").glob("doctor-*"))


def cluster_code(cluster):
    """A slow disk of this machine is worth a look, and no more."""
    command = [str(BIN / "buffer-ctl"), "--address", cluster.address(1), "doctor"]
    code = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S).returncode
    assert code in (0, 10)
    return code


def test_a_node_that_follows_has_metrics_of_its_own(cluster):
    leader, (first, _) = others(cluster)
    port = {node: cluster.port + 2 * (node - 1) + 1 for node in (leader, first)}
    pages = {}
    for node in (leader, first):
        with urllib.request.urlopen(f"http://127.0.0.1:{port[node]}/metrics", timeout=PATIENCE_S) as page:
            pages[node] = page.read().decode()
    for node, leads in ((leader, 1), (first, 0)):
        assert f"forebay_cluster_leads {leads}\n" in pages[node]
        assert f"forebay_cluster_leader {leader}\n" in pages[node]
        assert "forebay_coordinator_reachable 1\n" in pages[node]
        assert f'forebay_replica_primary{{machine="ledger"}} {leads}\n' in pages[node]
        assert 'forebay_replica_position{machine="shard-1",what="committed"}' in pages[node]
        assert "forebay_peer_connected" in pages[node]
    assert "forebay_next_step" in pages[leader] or "forebay_steps" in pages[leader]


def test_without_etcd_the_run_goes_on_and_status_says_what_is_missing(cluster):
    leader = cluster.leader()
    cluster.etcd.process.kill()
    cluster.etcd.process.wait()

    cluster.await_status(10, "etcd cannot be reached since", at=leader)
    cluster.etcd.start()
    cluster.settle()
    assert cluster.leader() == leader
