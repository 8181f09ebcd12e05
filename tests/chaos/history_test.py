"""A right history passes; each wrong one is noticed by the rule that is named after what is wrong, and right ones that look odd pass."""

from __future__ import annotations

import copy
import pathlib
import random
import sys
from collections.abc import Callable

import pytest

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "workload")]
from calls import OK, REFUSED, UNKNOWN, Call, Calls, load_calls  # noqa: E402
from history import RULES, Final, History, violations  # noqa: E402

LEASE_S = 20.0
STEPS, PER_STEP = 4, 3


def make(seed: int = 1) -> History:
    """Attempts that are granted, some given back and granted again, pushed, trained in steps of three; one stays held, one is dropped."""
    rng = random.Random(seed)
    calls: list[Call] = []
    now = 0.0

    def add(kind: str, outcome: str = OK, **what: object) -> Call:
        nonlocal now
        begin = now + rng.uniform(0.01, 0.1)
        now = begin + rng.uniform(0.01, 0.1)
        calls.append(Call("client", kind, begin, now, outcome, **what))  # type: ignore[arg-type]
        return calls[-1]

    for attempt in range(1, STEPS * PER_STEP + 3):
        lease = f"{attempt}/a"
        add("grant", attempt=attempt, lease=lease)
        add("renew", attempt=attempt, lease=lease)
        if attempt % 3 == 0:
            add("give_back", attempt=attempt, lease=lease)
            lease = f"{attempt}/b"
            add("grant", attempt=attempt, lease=lease)
        add("push", attempt=attempt, lease=lease, tag=attempt, result="accepted")
        add("reward", attempt=attempt, lease=lease, tag=attempt, result="accepted")
    add("attach", generation=1)
    for step in range(1, STEPS + 1):
        at = {"step": step, "revision": 1, "generation": 1}
        if step == 2:
            add("open", plan=99, **at)
            add("abort", **at)
            add("attach", generation=2)
        if step >= 2:
            at = {"step": step, "revision": 2, "generation": 2}
        add("open", plan=100 + step, **at)
        for _ in range(2):
            for index in range(PER_STEP):
                tag = (step - 1) * PER_STEP + index + 1
                add("fetch", step=step, revision=at["revision"], place=[0, index], digest=f"bytes of {tag}", tags=[tag])
        add("commit", plan=100 + step, result="committed", **at)
    held = STEPS * PER_STEP + 1
    return History(calls, LEASE_S, Final(held={held}, dropped=1))


def find(history: History, kind: str, number: int = 0, **what: object) -> Call:
    return [c for c in history.of(kind) if all(getattr(c, name) == value for name, value in what.items())][number]


def again(history: History, call: Call, **changes: object) -> Call:
    """The same call once more, at the end of everything."""
    other = copy.deepcopy(call)
    other.begin = max(c.end for c in history.calls if c.end != float("inf")) + 0.1
    other.end = other.begin + 0.1
    for name, value in changes.items():
        setattr(other, name, value)
    history.calls.append(other)
    return other


def noticed(history: History) -> set[str]:
    return {name for name, found in violations(history).items() if found}


def test_a_right_history_passes() -> None:
    for seed in range(20):
        assert noticed(make(seed)) == set()


def steal(h: History) -> None:
    """Attempt 1 goes to another between its renewal and its push."""
    push = find(h, "push", attempt=1)
    middle = push.begin - 0.004
    h.calls.append(Call("thief", "grant", middle, middle + 0.002, OK, attempt=1, lease="1/x"))


def push_under_old_lease(h: History) -> None:
    find(h, "push", attempt=3).lease = "3/a"


def renew_under_old_lease(h: History) -> None:
    again(h, find(h, "renew", attempt=3))


def swap_commits(h: History) -> None:
    second, third = find(h, "commit", step=2), find(h, "commit", step=3)
    second.begin, second.end, third.begin, third.end = third.begin, third.end, second.begin, second.end


def train_in_two_steps(h: History) -> None:
    for number in range(2):
        find(h, "fetch", number, step=3, place=[0, 0]).tags = [1]
    assert h.final is not None
    h.final.dropped += 1  # the one that it takes the place of


def train_unknown(h: History) -> None:
    for number in range(2):
        find(h, "fetch", number, step=3, place=[0, 0]).tags = [77]
    assert h.final is not None
    h.final.dropped += 1


def refuse(h: History) -> None:
    push = find(h, "push", attempt=1)
    push.outcome, push.result = REFUSED, "Stale"


def hold_trained(h: History) -> None:
    assert h.final is not None
    h.final.held.add(1)


def lose(h: History) -> None:
    assert h.final is not None
    h.final.held.clear()


def hold_stranger(h: History) -> None:
    assert h.final is not None
    h.final.held.add(78)


def drop_too_many(h: History) -> None:
    assert h.final is not None
    h.final.dropped += 1


def commit_by_old_generation(h: History) -> None:
    find(h, "commit", step=3).generation = 1


def older_generation(h: History) -> None:
    again(h, find(h, "attach"), generation=1)


WRONG: list[tuple[str, Callable[[History], object]]] = [
    ("taken_once", lambda h: again(h, find(h, "push", attempt=2))),
    ("taken_once", lambda h: again(h, find(h, "push", attempt=3), tag=79)),
    ("one_live_lease", steal),
    ("old_lease_is_void", push_under_old_lease),
    ("old_lease_is_void", renew_under_old_lease),
    ("done_stays_done", lambda h: again(h, find(h, "grant", attempt=2), lease="2/x")),
    ("rewarded_once", lambda h: again(h, find(h, "reward", attempt=2))),
    ("committed_in_order", swap_commits),
    ("committed_in_order", lambda h: h.calls.remove(find(h, "commit", step=2))),
    ("committed_once", lambda h: again(h, find(h, "commit", step=4))),
    ("committed_once", lambda h: again(h, find(h, "commit", step=4), revision=3, result="repeated")),
    ("one_plan", lambda h: again(h, find(h, "open", step=3), plan=7)),
    ("one_plan", lambda h: setattr(find(h, "commit", step=3), "plan", 7)),
    ("aborted_is_gone", lambda h: setattr(find(h, "commit", step=2), "revision", 1)),
    ("one_generation", commit_by_old_generation),
    ("one_generation", older_generation),
    ("same_bytes", lambda h: setattr(find(h, "fetch", 1, step=1, place=[0, 0]), "digest", "others")),
    ("trained_once", train_in_two_steps),
    ("trained_once", lambda h: setattr(find(h, "fetch", step=1), "tags", [1, 1])),
    ("trained_was_pushed", train_unknown),
    ("trained_was_pushed", refuse),
    ("accounted", hold_trained),
    ("accounted", lose),
    ("accounted", hold_stranger),
    ("accounted", drop_too_many),
]


@pytest.mark.parametrize(("rule", "mutation"), WRONG)
def test_a_wrong_history_is_noticed(rule: str, mutation: Callable[[History], object]) -> None:
    for seed in range(5):
        history = make(seed)
        mutation(history)
        assert rule in noticed(history)


def test_every_rule_has_a_wrong_history() -> None:
    assert {rule for rule, _ in WRONG} == set(RULES)


def test_what_is_unknown_may_be_either() -> None:
    history = make()
    push = find(history, "push", attempt=1)
    push.outcome, push.result = UNKNOWN, ""
    assert noticed(history) == set()  # it is in a step: it took effect
    push = find(history, "push", attempt=STEPS * PER_STEP + 1)
    push.outcome, push.result = UNKNOWN, ""
    assert noticed(history) == set()
    assert history.final is not None
    history.final.held.clear()
    assert noticed(history) == set()  # it did not, or was dropped
    history.final.dropped += 1
    assert noticed(history) == set()
    history.final.dropped += 1
    assert noticed(history) == {"accounted"}


def test_an_unknown_commit_may_be_the_predecessor() -> None:
    history = make()
    find(history, "commit", step=2).outcome = UNKNOWN
    assert noticed(history) == set()


def test_a_repetition_that_is_told_as_one_passes() -> None:
    history = make()
    again(history, find(history, "push", attempt=1), result="duplicate")
    again(history, find(history, "commit", step=1), result="repeated")
    assert noticed(history) == set()


def test_a_silent_holder_loses_its_lease() -> None:
    history = make()
    history.calls = [c for c in history.calls if c.attempt != 1 or c.kind in ("grant", "renew")]
    signs = [c.begin for c in history.of("grant", "renew") if c.attempt == 1]
    late = max(signs) + LEASE_S + 1
    history.calls.append(Call("heir", "grant", late, late + 0.1, OK, attempt=1, lease="1/x"))
    history.calls.append(Call("heir", "push", late + 0.2, late + 0.3, OK, attempt=1, lease="1/x", tag=1, result="accepted"))
    assert noticed(history) == set()


def test_calls_are_read_as_they_were_saved(tmp_path: pathlib.Path) -> None:
    calls = Calls()
    calls.add(make().calls)
    calls.save(tmp_path / "calls")
    assert load_calls(tmp_path / "calls") == calls.all()
    with (tmp_path / "calls").open("a") as file:
        file.write('{"client": "cut o')
    assert load_calls(tmp_path / "calls") == calls.all()
