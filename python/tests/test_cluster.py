"""Which node to call, by what nodes say: the rules alone."""

import pytest
from forebay._cluster import NotOfThisCluster, Route, parse_seeds
from forebay._messages.cluster import ClusterNode, ClusterView


def view(node, leader, epoch, nodes=3, cluster=7, down=()):
    members = [ClusterNode(id=i, address=f"n{i}:1", up=i not in down) for i in range(1, nodes + 1)]
    return ClusterView(cluster=cluster, node=node, leader=leader, leader_epoch=epoch, nodes=members)


@pytest.fixture
def route():
    return Route(["n1:1", "n2:1", "n3:1"], salt=1)


def test_seeds_are_parsed():
    assert parse_seeds("a:1, b:2,a:1,unix:/c") == ["a:1", "b:2", "unix:/c"]
    for wrong in ("", " ", "a:1,,b:2", "a:1,"):
        with pytest.raises(ValueError, match="target"):
            parse_seeds(wrong)


def test_a_view_and_a_refusal_name_the_leader(route):
    before = route.revision
    route.take_view("n2:1", view(2, leader=3, epoch=5))
    assert (route.current, route.leader) == ("n3:1", "n3:1")
    assert route.revision > before
    route.take_refusal("n3:1", "n1:1", 6, "node 3 does not lead")
    assert route.current == "n1:1"


def test_who_is_behind_leads_nobody_back(route):
    route.take_view("n2:1", view(2, leader=3, epoch=5))
    revision = route.revision
    route.take_view("n1:1", view(1, leader=1, epoch=4))
    route.take_refusal("n3:1", "n1:1", 4, "")
    route.take_refusal("n3:1", "n2:1", 5, "")  # there is one leader in an epoch
    assert (route.current, route.revision) == ("n3:1", revision)


def test_calls_stay_while_nobody_leads_and_go_round_when_they_fail(route):
    route.take_view("n2:1", view(2, leader=1, epoch=5))
    route.take_view("n2:1", view(2, leader=0, epoch=5))
    assert route.current == "n1:1"
    revision = route.revision
    asked = []
    for _ in range(4):
        asked.append(route.current)
        route.take_failure(route.current, "away")
    assert asked == ["n1:1", "n2:1", "n3:1", "n1:1"]
    assert route.revision == revision  # no reason to hurry
    route.take_failure("n3:1", "of a call that began before")
    assert route.current == "n2:1"
    route.take_view("n3:1", view(3, leader=2, epoch=5))
    assert route.revision > revision  # also where calls go already: they wait for it


def test_another_node_than_the_leader_is_watched(route):
    route.take_view("n2:1", view(2, leader=1, epoch=5, down=[3]))
    assert route.next_watch() == "n2:1"
    route.watch_failed("n2:1", "silent")
    assert route.next_watch() == "n3:1"
    route.watch_failed("n3:1", "silent")
    assert route.next_watch() == "n1:1"
    assert not route.watches_leader("n1:1")  # no better one
    route.forgive()
    assert route.watches_leader("n1:1")


def test_a_daemon_alone_is_stayed_with():
    route = Route(["a:1", "b:1"], salt=1)
    route.take_view("b:1", ClusterView(nodes=[ClusterNode(up=True)]))
    assert route.alone
    route.take_failure("b:1", "away")
    assert route.current == "b:1"


def test_what_is_not_of_the_cluster_is_not_believed(route):
    route.take_view("n2:1", view(2, leader=1, epoch=5))
    for strange in (view(2, leader=3, epoch=9, cluster=8), ClusterView()):
        with pytest.raises(NotOfThisCluster):
            route.take_view("n2:1", strange)
    assert route.current == "n1:1"


def test_a_socket_of_the_leaders_host_is_kept():
    route = Route(["unix:/s"], salt=1)
    route.take_view("unix:/s", view(1, leader=1, epoch=5))
    assert route.current == "unix:/s"
    route.take_view("n2:1", view(2, leader=3, epoch=6))
    assert route.current == "n3:1"


def test_nodes_that_are_no_members_any_more_are_forgotten(route):
    route.take_view("n1:1", view(1, leader=1, epoch=5, nodes=9))
    assert len(route.addresses) == 9
    route.take_view("n1:1", view(1, leader=1, epoch=5, nodes=2))
    assert route.addresses == ["n1:1", "n2:1", "n3:1"]  # the seeds stay


def test_says_whom_it_asked(route):
    route.take_view("n2:1", view(2, leader=0, epoch=5))
    route.take_failure("n1:1", "no connection")
    assert route.asked() == "n1:1 (no connection), n2:1 (knows no leader), n3:1 (not asked yet)"
    assert Route(["a:1"], salt=1).asked() == ""
