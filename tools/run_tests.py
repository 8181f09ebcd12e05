#!/usr/bin/env python3
"""Builds and runs the test suites, sums up their cases, and ends with one line `N passed, N failed`.

    ./dev test                                  CI's share of every suite but asan, tsan, nfs and examples
    ./dev test asan tsan                        the tests in sanitized builds
    ./dev test unit transcripts                 some suites
    ./dev test sim --minutes 60 [--seed S]      the simulator for as long as you like
    ./dev test sim --cluster --minutes 60       the cluster's simulator; mutations --cluster: its mutations
    ./dev test crash --rounds 500 [--seed S]    kills of a loaded daemon
    ./dev test chaos --rounds 200 [--seed S]    a loaded cluster whose nodes, etcd, network and disks fail; wants root
    ./dev test nfs [-- --case NAME]             a daemon whose store is on real NFS
    ./dev test examples                         the demo's parts, with torch
    ./dev test fuzz --seconds 60                libFuzzer, so long on each decoder
    ./dev test integration -- -k drain -x       what follows -- goes to pytest or to ctest

A suite fails if a case fails, if a sanitizer reports anything, or if it ran no case. Its whole output is in
build/test-logs/; that of a failed suite is printed.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import suites  # noqa: E402

CI_SIM_MINUTES = 5.0
CI_FUZZ_SECONDS = 5
CI_CRASH_ROUNDS = 20
MAX_PRINTED_LINES = 1500


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suites", nargs="*", metavar="suite", help=", ".join(suites.SUITES))
    parser.add_argument("--minutes", type=float, default=CI_SIM_MINUTES, help="of simulation")
    parser.add_argument("--seed", help="the simulator's first seed, or of the schedule of kills")
    parser.add_argument("--cluster", action="store_true", help="sim and mutations: a cluster instead of one node")
    parser.add_argument("--rounds", type=int, default=CI_CRASH_ROUNDS, help="of kills")
    parser.add_argument("--seconds", type=int, default=CI_FUZZ_SECONDS, help="of fuzzing, for each decoder")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 2)
    own, extra = sys.argv[1:], []
    if "--" in own:
        own, extra = own[: own.index("--")], own[own.index("--") + 1 :]
    arguments = parser.parse_args(own)
    for name in arguments.suites:
        if name not in suites.SUITES:
            parser.error(f"no suite {name}; there are {', '.join(suites.SUITES)}")
    arguments.extra = extra
    return arguments


def report(name: str, result: suites.Result, seconds: float) -> None:
    print(f"{name:<14}{result.passed:>7} passed {result.failed:>5} failed {seconds:>7.0f} s", flush=True)
    if result.failed:
        lines = result.output.splitlines()
        if len(lines) > MAX_PRINTED_LINES:
            print(f"   ({len(lines) - MAX_PRINTED_LINES} lines more in build/test-logs/{name}.log)")
        print("\n".join("   | " + line for line in lines[-MAX_PRINTED_LINES:]), flush=True)


def run_one(name: str, context: suites.Context) -> suites.Result:
    """Runs a suite; one that ran nothing has failed."""
    began = time.monotonic()
    result = suites.SUITES[name](context.for_suite(name))
    if result.passed + result.failed == 0:
        result.fail("the suite ran no test")
    report(name, result, time.monotonic() - began)
    return result


def run_all(context: suites.Context) -> list[suites.Result]:
    """The whole share. What depends on time runs alone; the simulator then shares the machine with sanitizer builds."""
    results = [run_one("build", context)]
    if results[0].failed:
        return results
    results += [run_one(name, context) for name in suites.QUIET]
    in_background: list[suites.Result] = []
    simulator = threading.Thread(target=lambda: in_background.append(run_one("sim", context)))
    simulator.start()
    results += [run_one(name, context) for name in suites.BESIDE_SIMULATION]
    simulator.join()
    if not in_background:
        in_background.append(suites.Result(failed=1))
    return results + in_background


def main() -> int:
    arguments = parse()
    context = suites.Context(
        root=pathlib.Path(__file__).resolve().parent.parent,
        jobs=arguments.jobs,
        minutes=arguments.minutes,
        seconds=arguments.seconds,
        seed=arguments.seed,
        rounds=arguments.rounds,
        extra=arguments.extra,
        cluster=arguments.cluster,
        alone=len(arguments.suites) == 1,
        by_hand=bool(arguments.suites),
    )
    if arguments.suites:
        results = [run_one(name, context) for name in arguments.suites]
    else:
        results = run_all(context)
    passed, failed = sum(r.passed for r in results), sum(r.failed for r in results)
    print(f"{passed} passed, {failed} failed", flush=True)
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
