"""How replays become rows: each run with its own flags, the means of its seeds, and the reference beside them."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import replay  # noqa: E402


def fake_run(flags):
    seed = int(next(flag for flag in flags if flag.startswith("--replay_seed")).split("=")[1])
    return {**dict.fromkeys(replay.COLUMNS, 1.0), "waiting_share": seed / 10, "steps": [{"step": seed}]}


@pytest.fixture
def runs(monkeypatch):
    asked = []

    def replay_all(flags):
        asked.extend(flags)
        return [fake_run(some) for some in flags]

    monkeypatch.setattr(replay, "replay_all", replay_all)
    return asked


def test_each_scenario_is_run_under_each_policy_with_each_seed(runs):
    rows = replay.table([256, 512], seeds=2)
    assert len(rows) == len(replay.SCENARIOS) * 2 * len(replay.POLICIES)
    assert len({tuple(flags) for flags in runs}) == len(runs) == 2 * len(rows)
    for row in rows:
        assert row["waiting_share"] == pytest.approx(0.15)
        assert row["steps"] == [{"step": 1}]


def test_the_reference_stands_above_what_is_to_be_like_it(runs, capsys):
    replay.show(replay.table([512], seeds=1))
    lines = capsys.readouterr().out.splitlines()
    assert "trainer waits" in lines[0]
    assert lines[1].startswith("the reference runs") and "0.705" in lines[1] and "617.500" in lines[1]
    assert all(len(line) == len(lines[2]) for line in lines[2:])


def test_a_run_that_fails_says_why(monkeypatch, tmp_path):
    program = tmp_path / "buffer-bench"
    program.write_text("#!/bin/sh\necho 'buffer-bench: no such policy' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setattr(replay, "PROGRAM", program)
    with pytest.raises(SystemExit, match="no such policy"):
        replay.replay("--policy=none")
