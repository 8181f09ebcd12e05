"""Whether a repeated Acquire gets its first answer when several shards own the tasks. Exit code 1 if it does not.

    PYTHONPATH=python python tests/crash/repeated_acquire.py

No kill is needed: a request that found nothing at the first shard it came to, and something at the second, is made
again when the first has tasks, too.
"""

from __future__ import annotations

import pathlib
import sys
from typing import Any

sys.path[:0] = [str(pathlib.Path(__file__).parent)]
import forebay as fb  # noqa: E402
from forebay._connection import random_id  # noqa: E402
from forebay._messages import actor as wire  # noqa: E402
from main import find_bufferd  # noqa: E402

SERVICE = "/forebay.v1.ActorService/"


def ask(run: fb.Run, session: int, number: int, source: str) -> list[tuple[int, int]]:
    request = wire.AcquireRequest(session=session, request_id=number, max=2, sources=[source], wait_ms=2000)
    response: Any = run._connection.call(SERVICE + "Acquire", request, wire.AcquireResponse)
    return [(a.attempt_id, a.token) for a in response.assignments]


def main() -> int:
    wrong = 0
    with fb.start(find_bufferd(), shards=2) as run:
        # The shard that is asked first follows from the request's number.
        for number in (1, 2):
            source, session = f"source-{number}", random_id()
            run._connection.call(SERVICE + "OpenSession", wire.OpenSessionRequest(session=session), wire.OpenSessionResponse)
            run.load(source, [{"id": "only"}], group_size=2)
            first = ask(run, session, number, source)
            run.load(source, [{"id": f"more-{i}"} for i in range(20)])
            again = ask(run, session, number, source)
            print(f"request {number}: {first}, then {again}")
            wrong += first != again
    print(f"{2 - wrong} passed, {wrong} failed")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
