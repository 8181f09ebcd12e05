"""Whether what clients were told can be true of one run: per attempt (free, leased, done), per step (open, sealed,
committed once), and for every rollout that was acknowledged. Pure.

A history is the calls of all clients on one steady clock. A call took effect, if at all, between its begin and its end; one
whose outcome is unknown may take effect at any time after its begin, or never. Each rule yields sentences that say what
cannot be. See RULES for all of them by name.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from calls import OK, REFUSED, UNKNOWN, Call

TAKEN = ("accepted",)


@dataclass
class Final:
    """What the run holds when all clients are at rest."""

    held: set[int] = field(default_factory=set)  # tags
    dropped: int = 0  # with a reason that is counted


@dataclass
class History:
    calls: list[Call]
    lease_s: float  # a lease is not taken away earlier, after the last sign of life that was acknowledged
    final: Final | None = None

    def of(self, *kinds: str) -> list[Call]:
        return [call for call in self.calls if call.kind in kinds]

    def by_attempt(self, *kinds: str) -> dict[int, list[Call]]:
        found: dict[int, list[Call]] = collections.defaultdict(list)
        for call in self.of(*kinds):
            found[call.attempt].append(call)
        return found


def taken(call: Call) -> bool:
    return call.outcome == OK and call.result in TAKEN


# ---- attempts


def taken_once(history: History) -> Iterator[str]:
    """An attempt is done once: the second acknowledgement says that it is a duplicate."""
    for attempt, calls in history.by_attempt("push").items():
        takers = [call for call in calls if taken(call)]
        if len(takers) > 1:
            yield f"attempt {attempt:#x} was taken {len(takers)} times: {takers}"


def one_live_lease(history: History) -> Iterator[str]:
    """Nobody is given an attempt that another holds, has not given up, and has not been silent about."""
    ended: dict[str, float] = {}  # since when it may be over: refused, given back, or pushed
    signs: dict[str, list[Call]] = collections.defaultdict(list)
    for call in history.calls:
        if call.kind == "give_back" or (call.kind == "push" and call.result != "duplicate"):
            ended[call.lease] = min(ended.get(call.lease, call.begin), call.begin)
        if call.kind in ("grant", "renew") and call.outcome == OK:
            signs[call.lease].append(call)
    for attempt, grants in history.by_attempt("grant").items():
        for other in (g for g in grants if g.outcome == OK):
            for lease in {g.lease for g in grants} - {other.lease}:
                alive = [s.begin for s in signs[lease] if s.end < other.begin]
                over = ended.get(lease, float("inf")) <= other.end
                if alive and not over and other.end < max(alive) + history.lease_s:
                    yield f"attempt {attempt:#x} went to {other} while {lease} was alive"


def old_lease_is_void(history: History) -> Iterator[str]:
    """Once another has an attempt, calls under the lease before change nothing."""
    grants = history.by_attempt("grant")
    for call in history.of("push", "renew"):
        if call.outcome != OK or (call.kind == "push" and not taken(call)):
            continue
        own = [g.end for g in grants[call.attempt] if g.lease == call.lease]
        later = [g for g in grants[call.attempt] if own and g.lease != call.lease and max(own) < g.begin and g.end < call.begin]
        if later:
            yield f"{call} took effect after {later[0]}"


def done_stays_done(history: History) -> Iterator[str]:
    """An attempt whose rollout is in is not handed out again."""
    done = {call.attempt: call for call in history.of("push") if taken(call)}
    for grant in history.of("grant"):
        push = done.get(grant.attempt)
        if push is not None and push.end < grant.begin and push.lease != grant.lease:
            yield f"{grant} came after {push}"


def rewarded_once(history: History) -> Iterator[str]:
    """A reward that comes later is taken once."""
    for attempt, calls in history.by_attempt("reward").items():
        if sum(taken(call) for call in calls) > 1:
            yield f"attempt {attempt:#x} was rewarded more than once"


# ---- steps


def _committed(history: History) -> dict[tuple[int, int], list[Call]]:
    """Acknowledged commits by branch and step."""
    found: dict[tuple[int, int], list[Call]] = collections.defaultdict(list)
    for call in history.of("commit"):
        if call.outcome == OK:
            found[call.branch, call.step].append(call)
    return found


def _perhaps_committed(history: History) -> set[tuple[int, int]]:
    return {(call.branch, call.step) for call in history.of("commit") if call.outcome in (OK, UNKNOWN)}


def committed_in_order(history: History) -> Iterator[str]:
    """A step is committed after its predecessor, of which somebody has asked that."""
    commits, perhaps = _committed(history), _perhaps_committed(history)
    first = min((step for _, step in commits), default=0)
    for (branch, step), calls in commits.items():
        if step > first and (branch, step - 1) not in perhaps and (branch - 1, step - 1) not in perhaps:
            yield f"step {step} was committed, and nobody committed its predecessor"
        before = commits.get((branch, step - 1))
        if before and min(c.end for c in calls) < min(c.begin for c in before):
            yield f"step {step} was committed before {before[0]}"


def committed_once(history: History) -> Iterator[str]:
    """Under one revision and plan; the second acknowledgement says that it is a repetition."""
    for (_, step), calls in _committed(history).items():
        if len({(call.revision, call.plan) for call in calls}) > 1:
            yield f"step {step} was committed under several plans: {calls}"
        if sum(call.result != "repeated" for call in calls) > 1:
            yield f"step {step} was committed more than once: {calls}"


def one_plan(history: History) -> Iterator[str]:
    """A revision of a step has one plan, whoever opens it, and the commit is of that plan."""
    plans: dict[tuple[int, int, int], Call] = {}
    for call in history.of("open", "commit"):
        if call.outcome == REFUSED or not call.plan:
            continue
        first = plans.setdefault((call.branch, call.step, call.revision), call)
        if first.plan != call.plan:
            yield f"{call} has another plan than {first}"


def aborted_is_gone(history: History) -> Iterator[str]:
    """A revision that was aborted is not committed afterwards."""
    for abort in history.of("abort"):
        for call in _committed(history).get((abort.branch, abort.step), []):
            if abort.outcome == OK and call.revision == abort.revision and abort.end < call.begin:
                yield f"{call} was done after {abort}"


def one_generation(history: History) -> Iterator[str]:
    """A trainer that has a successor changes nothing."""
    attached = [call for call in history.of("attach") if call.outcome == OK]
    for call in history.of("commit", "abort"):
        newer = [a for a in attached if a.generation > call.generation and a.end < call.begin]
        if newer and call.outcome == OK and call.result != "repeated":
            yield f"{call} was done after {newer[0]}"
    for one, other in itertools.pairwise(sorted(attached, key=lambda call: call.end)):
        if one.end < other.begin and one.generation > other.generation:
            yield f"{other} has an older generation than {one}"


def same_bytes(history: History) -> Iterator[str]:
    """What is fetched again is the same."""
    first: dict[tuple[Any, ...], Call] = {}
    for call in history.of("fetch"):
        before = first.setdefault((call.branch, call.step, call.revision, *call.place), call)
        if (before.digest, before.tags) != (call.digest, call.tags):
            yield f"{call} has other bytes than {before}"


# ---- rollouts


def _trained(history: History, commits: set[tuple[int, int, int]]) -> dict[int, set[tuple[int, int]]]:
    """Of each tag the steps that it is in, of those revisions."""
    found: dict[int, set[tuple[int, int]]] = collections.defaultdict(set)
    for call in history.of("fetch"):
        if (call.branch, call.step, call.revision) in commits:
            for tag in call.tags:
                found[tag].add((call.branch, call.step))
    return found


def _revisions(history: History, outcomes: tuple[str, ...]) -> set[tuple[int, int, int]]:
    return {(call.branch, call.step, call.revision) for call in history.of("commit") if call.outcome in outcomes}


def trained_once(history: History) -> Iterator[str]:
    """A rollout is in one committed step at most, and there once."""
    revisions = _revisions(history, (OK,))
    for tag, steps in _trained(history, revisions).items():
        if len(steps) > 1:
            yield f"rollout {tag:#x} is in steps {sorted(steps)}"
    for call in history.of("fetch"):
        twice = [tag for tag, count in collections.Counter(call.tags).items() if count > 1]
        if twice:
            yield f"rollout {twice[0]:#x} is twice in {call}"


def _pushes(history: History) -> Iterator[tuple[int, Call]]:
    for call in history.of("push", "push_group"):
        for tag in filter(None, call.tags or [call.tag]):  # those of evaluations have none: no step takes them
            yield tag, call


def trained_was_pushed(history: History) -> Iterator[str]:
    """What steps hold was pushed by somebody, and not refused."""
    refused = {tag for tag, call in _pushes(history) if call.outcome == REFUSED or call.result == "late"}
    known = {tag for tag, call in _pushes(history)} - refused
    for tag, steps in _trained(history, _revisions(history, (OK,))).items():
        if tag not in known:
            yield f"rollout {tag:#x} of steps {sorted(steps)} was {'refused' if tag in refused else 'never pushed'}"


def accounted(history: History) -> Iterator[str]:
    """What was acknowledged is held, or in a committed step, or dropped and counted; never two of them."""
    if history.final is None:
        return
    final = history.final
    acknowledged = {tag for tag, call in _pushes(history) if taken(call)}
    doubt = {tag for tag, call in _pushes(history) if call.outcome == UNKNOWN or call.result == "duplicate"} - acknowledged
    trained = set(_trained(history, _revisions(history, (OK,))))
    perhaps = set(_trained(history, _revisions(history, (UNKNOWN,)))) - trained
    both = final.held & trained
    if both:
        yield f"{sorted(both)[:3]} are held, and were trained"
    stray = final.held - acknowledged - doubt
    if stray:
        yield f"{sorted(stray)[:3]} are held, and nobody was told so"
    missing = len(acknowledged - final.held - trained - perhaps)
    most = len((acknowledged | doubt) - final.held - trained)
    if not missing <= final.dropped <= most:
        yield f"{missing} to {most} rollouts are neither held nor trained, and {final.dropped} are counted as dropped"


RULES: dict[str, Callable[[History], Iterator[str]]] = {
    rule.__name__: rule
    for rule in (
        taken_once, one_live_lease, old_lease_is_void, done_stays_done, rewarded_once, committed_in_order, committed_once, one_plan,
        aborted_is_gone, one_generation, same_bytes, trained_once, trained_was_pushed, accounted,
    )
}  # fmt: skip


def violations(history: History) -> dict[str, list[str]]:
    """By rule; a rule that holds has an empty list."""
    return {name: list(rule(history)) for name, rule in RULES.items()}
