"""How pairs of runs become figures: alternation, medians of ratios, bounds, and what happens when a program is missing."""

import json
import pathlib
import sys
from contextlib import contextmanager

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import run  # noqa: E402
from harness import NotBuilt, Programs, Settings  # noqa: E402
from measures.base import Measure, PairedMeasure, Result  # noqa: E402
from measures.cluster import longest_gap  # noqa: E402
from measures.durable import PushDurable  # noqa: E402
from measures.replicated import CatchUp, Load, ReplicatedCpu, Sent  # noqa: E402
from measures.swarm import Swarm  # noqa: E402


class FakePair(PairedMeasure):
    name, unit, figure, cpu, at_least = "fake", "ops/s", "ops_per_s", "server_cpu_us_per_op", 0.5
    script = "unary:8>8"

    def __init__(self, ours: list[float], limits: list[float]):
        self.speeds = {"ours": iter(ours), "limit": iter(limits)}
        self.calls: list[str] = []
        self.scripts: set[str] = set()

    def once(self, side: str) -> dict:
        self.calls.append(side)
        return {"ops_per_s": next(self.speeds[side]), "server_cpu_us_per_op": 2.0, "script": "unary:9>9",
                "command": side}

    @contextmanager
    def ours(self, programs):
        yield lambda: self.once("ours")

    @contextmanager
    def limit(self, programs):
        def with_script(script):
            self.scripts.add(script)
            return self.once("limit")

        yield with_script


def programs(folder: pathlib.Path, rounds: int) -> Programs:
    return Programs(Settings(folder, sys.executable, rounds, seconds=1.0, warm_up_seconds=0.0, unix=False))


def test_pairs_alternate_and_the_ratio_is_the_median_of_the_pairs(tmp_path):
    # Drift makes both sides slower; the pairs' ratios are 0.9, 0.8 and 0.1.
    pair = FakePair(ours=[1.0, 90.0, 40.0, 1.0], limits=[100.0, 50.0, 10.0])
    (result,) = pair.results(programs(tmp_path, 3), limits_only=False)
    assert pair.calls == ["ours", "ours", "limit", "limit", "ours", "ours", "limit"]
    assert result.ratio == pytest.approx(0.8)
    assert (result.value, result.limit) == (40.0, 50.0)
    assert result.met is True
    assert result.details["cpu_us_per_op"] == 2.0


def test_the_limit_runs_on_the_messages_that_ours_exchanged(tmp_path):
    pair = FakePair(ours=[1.0, 1.0], limits=[1.0])
    pair.results(programs(tmp_path, 1), limits_only=False)
    assert pair.scripts == {"unary:9>9"}


def test_without_our_side_a_limit_has_no_value_and_no_verdict(tmp_path):
    pair = FakePair(ours=[], limits=[3.0, 5.0, 4.0])
    (result,) = pair.results(programs(tmp_path, 3), limits_only=True)
    assert (result.value, result.limit, result.ratio, result.met) == (None, 4.0, None, None)
    assert pair.scripts == {"unary:8>8"}


@pytest.mark.parametrize(("value", "bound", "met"), [(50.0, "value <= 50", True), (50.1, "value <= 50", False),
                                                     (1.0, "", None)])
def test_a_bound_on_the_value_itself(value, bound, met):
    assert Result("x", value, "ms", "command", bound=bound).met is met


def test_a_missing_program_is_named(tmp_path):
    with pytest.raises(NotBuilt, match="bufferd"):
        programs(tmp_path, 1).path("bufferd")


class Fixed(Measure):
    def __init__(self, name: str, value: float | None):
        self.name, self.value = name, value

    def results(self, programs, limits_only):
        if self.value is None:
            raise NotBuilt("there is no such program")
        return [Result(self.name, self.value, "ms", "command", bound="value <= 10")]


@pytest.mark.parametrize(("values", "code"), [([5.0, 10.0], 0), ([5.0, 11.0], 1), ([5.0, None], 2)])
def test_the_exit_status_tells_missed_bounds_from_missing_figures(values, code, tmp_path, monkeypatch):
    monkeypatch.setattr(run.measures, "ALL", [Fixed(f"m{i}", value) for i, value in enumerate(values)])
    monkeypatch.setattr(run, "ROOT", tmp_path)
    monkeypatch.setattr(run, "OUTPUT", tmp_path / "results.json")
    monkeypatch.setattr(sys, "argv", ["run.py"])
    assert run.main() == code
    written = json.loads((tmp_path / "results.json").read_text())
    assert [entry["value"] for entry in written] == [value for value in values if value is not None]


class FakePrograms(Programs):
    """Servers that are not there, and figures that are given."""

    def __init__(self, folder: pathlib.Path, ours: list[float], wire: list[float], disk: list[float]):
        super().__init__(programs(folder, len(disk)).settings)
        self.home, self.figures = folder, {"push": iter(ours), "limit": iter(wire)}
        self.disk = iter(disk)

    @contextmanager
    def folder(self):
        yield self.home

    @contextmanager
    def daemon(self, **config):
        yield None

    limit_server = daemon

    def path(self, name):
        return name

    def bench(self, server, subcommand, **flags):
        return {"gb_per_s": next(self.figures[subcommand]), "script": "store:9>9", "server_cpu_s_per_gb": 1.0,
                "command": subcommand}

    def json_of(self, words, slack_seconds=120):
        figures = {"value": 0.0, "limit": next(self.disk), "ratio": 0.0, "cpu_s_per_gb": 0.0}
        return {"spill_write": figures, "spill_read": figures, "command": "spill"}


def test_a_durable_push_is_held_to_the_lower_limit_of_each_round(tmp_path):
    fake = FakePrograms(tmp_path, ours=[9.0, 0.8, 0.9, 0.3], wire=[1.0, 2.0, 0.5], disk=[2.0, 1.0, 3.0])
    (result,) = PushDurable(channels=4).results(fake, limits_only=False)
    assert result.name == "push_durable_500k_4_channels"
    assert result.ratio == pytest.approx(0.8)  # of 0.8, 0.9 and 0.6
    assert (result.value, result.limit) == (0.8, 1.0)
    assert result.command.startswith("bufferd --storage.directory=")


def test_an_answer_that_was_under_way_does_not_end_a_standstill():
    # A long pause before the moment does not count; the answer right after it was sent before.
    events = [0.0, 5.0, 5.1, 5.21, 6.3, 6.4]
    assert longest_gap(events, moment=5.2) == (5.21, 6.3)
    assert longest_gap(events, moment=5.3) == (5.21, 6.3)


def test_the_dearer_follower_of_each_round_is_held_to_the_daemon_alone():
    def run(own, beside):
        return {"server_cpu_us_per_op": own, "beside_cpu_us_per_op": beside, "ops_per_s": 1.0, "client_cpu_us_per_op": 1.0,
                "command": "assign"}

    runs = [run(12.0, [5.0, 7.0]), run(30.0, [9.0, 2.0]), run(13.0, [6.0, 6.0])]
    alone = [run(10.0, []), run(10.0, []), run(10.0, [])]
    primary, backup = ReplicatedCpu().figures(Load("_x", "assign", {}), runs, alone)
    assert (primary.name, backup.name) == ("replicated_primary_cpu_x", "replicated_backup_cpu_x")
    assert (primary.value, primary.limit, primary.ratio, primary.met) == (13.0, 10.0, pytest.approx(1.3), True)
    assert (backup.value, backup.ratio, backup.met) == (7.0, pytest.approx(0.7), True)


def test_the_rate_of_catching_up_counts_from_when_the_node_listens():
    away = {"seconds": 3.0, "start_seconds": 1.0, "entries": 1000.0, "ops": 4000.0, "load_ops_per_s": 500.0, "bytes": 80e6,
            "leader_cpu_s": 0.1, "node_cpu_s": 0.2, "disk_mb_per_s": 400.0, "link_mb_per_s": 100.0, "command": "assign"}
    result = CatchUp("catch_up_log", operations=1, by_snapshot=False).figure([away])
    assert (result.value, result.limit, result.ratio) == (pytest.approx(40.0), 100.0, pytest.approx(0.4))
    assert result.details["entries_per_s"] == pytest.approx(500.0)
    assert (result.details["ops_per_s"], result.details["load_ops_per_s"]) == (pytest.approx(2000.0), 500.0)
    assert result.met is None


def test_what_was_sent_before_the_node_came_back_does_not_count():
    assert Sent(9.0, 7.0, 3.0).since(Sent(4.0, 1.0, 2.0)) == Sent(5.0, 6.0, 1.0)


def test_a_swarm_is_paired_with_bare_grpc_field_by_field():
    def run(value):
        fields = ("server_bytes_per_connection", "server_cpu_us_per_renewal", "acquire_p99_ms", "connections",
                  "connect_seconds", "server_bytes_per_connection_after", "renewals", "renew_median_ms", "renew_p99_ms",
                  "renew_worst_ms", "acquires", "acquire_median_ms", "acquire_worst_ms", "renewals_beside",
                  "turning_server_cpu_s", "skipped")
        return {**dict.fromkeys(fields, value), "command": "swarm"}

    results = Swarm().figures("bufferd & swarm", [run(6.0), run(8.0)], [run(2.0), run(4.0)])
    assert [(r.name, r.value, r.limit, r.ratio) for r in results] == [
        (name, 7.0, 3.0, pytest.approx(2.5))
        for name in ("swarm_bytes_per_connection", "swarm_renewal_cpu", "swarm_acquire_p99_ms")]
