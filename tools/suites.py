"""The test suites: how each is built, run and counted. tools/run_tests.py drives them.

A program of our own that is no GoogleTest program closes with a line `N passed, N failed` (words may stand between), or
counts as one case by its exit code.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import threading
import xml.etree.ElementTree
from collections.abc import Callable

ASAN = "asan-ubsan"
SUITE_TIMEOUT_S = 1500
BUILD_TIMEOUT_S = 3600
# Each has an emulated machine, which often waits.
NFS_CASES_AT_ONCE = 2
# Sanitized code is slower; tests that bound a wait multiply it with this.
SLOWNESS = {"release": "1", ASAN: "4", "tsan": "10"}


@dataclasses.dataclass
class Result:
    passed: int = 0
    failed: int = 0
    output: str = ""

    def add(self, other: Result) -> None:
        self.passed += other.passed
        self.failed += other.failed
        self.output += other.output

    def fail(self, why: str) -> Result:
        self.failed += 1
        self.output += why + "\n"
        return self


@dataclasses.dataclass
class Context:
    root: pathlib.Path
    jobs: int
    minutes: float
    seconds: int
    seed: str | None
    rounds: int
    extra: list[str]
    alone: bool  # The only suite of this call: its output is shown as it comes.
    by_hand: bool  # Named on the command line, so not CI's share.
    cluster: bool = False  # The cluster's simulator instead of one node's.
    suite: str = ""

    def for_suite(self, name: str) -> Context:
        context = dataclasses.replace(self, suite=name)
        context.logs.mkdir(parents=True, exist_ok=True)
        context.log.write_text("")
        return context

    @property
    def logs(self) -> pathlib.Path:
        return self.root / "build" / "test-logs"

    @property
    def log(self) -> pathlib.Path:
        return self.logs / f"{self.suite}.log"

    def tree(self, preset: str) -> pathlib.Path:
        return self.root / "build" / preset

    def scratch(self, name: str) -> pathlib.Path:
        """An empty folder for reports of this suite."""
        folder = self.logs / f"{self.suite}-{name}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder

    def run(self, command: list[str], env: dict[str, str] | None = None, timeout: float = SUITE_TIMEOUT_S) -> tuple[int, str]:
        """Runs a command to its end or its time limit; returns exit code and output."""
        lines: list[str] = [f"$ {' '.join(map(str, command))}\n"]
        process = subprocess.Popen(
            command, cwd=self.root, env={**os.environ, **(env or {})}, text=True, errors="replace", bufsize=1,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        timer = threading.Timer(timeout, lambda: os.killpg(process.pid, 9))
        timer.start()
        with self.log.open("a") as log:
            log.write(lines[0])
            for line in process.stdout:
                lines.append(line)
                log.write(line)
                if self.alone:
                    print(line, end="", flush=True)
        code = process.wait()
        if not timer.is_alive():
            lines.append(f"stopped after {timeout:.0f} s\n")
        timer.cancel()
        return code, "".join(lines)


def count_gtest(report: pathlib.Path) -> tuple[int, int]:
    data = json.loads(report.read_text())
    cases = [case for suite in data["testsuites"] for case in suite["testsuite"]]
    ran = [case for case in cases if case.get("status") == "RUN"]
    failed = sum(1 for case in ran if case.get("failures"))
    return len(ran) - failed, failed


def count_junit(report: pathlib.Path) -> tuple[int, int]:
    """Cases of a pytest report; a skipped case has failed, for nobody would miss it."""
    passed = failed = 0
    for case in xml.etree.ElementTree.parse(report).getroot().iter("testcase"):
        if any(case.find(trouble) is not None for trouble in ("failure", "error", "skipped")):
            failed += 1
        else:
            passed += 1
    return passed, failed


def count_program(code: int, output: str) -> Result:
    summary = re.findall(r"(\d+)(?: \w+)? passed, (\d+)(?: \w+)? failed", output)
    passed, failed = map(int, summary[-1]) if summary else (int(code == 0), int(code != 0))
    if code != 0 and failed == 0:
        failed = 1
    return Result(passed, failed, output)


def build(context: Context, preset: str, targets: list[str]) -> Result:
    """Configures and builds; a result with a failure if that did not work, else with no case."""
    tree = context.tree(preset)
    code, output = context.run(["cmake", "--preset", preset])
    if code == 0:
        if targets:
            _, known = context.run(["ninja", "-C", str(tree), "-t", "targets", "all"])
            targets = [t for t in targets if re.search(rf"^{re.escape(t)}: ", known, re.MULTILINE)]
            if not targets:
                return Result()
        ninja = ["ninja", "-C", str(tree), "-j", str(context.jobs), *targets]
        code, output = context.run(ninja, timeout=BUILD_TIMEOUT_S)
    return Result() if code == 0 else Result(0, 1, output)


def sanitizer_environment(context: Context, preset: str, reports: pathlib.Path) -> dict[str, str]:
    log = f"log_path={reports}/report"
    if preset == ASAN:
        return {
            "ASAN_OPTIONS": f"abort_on_error=1:detect_leaks=1:strict_string_checks=1:{log}",
            "UBSAN_OPTIONS": f"print_stacktrace=1:{log}",
        }
    if preset == "tsan":
        # Debian's gRPC is not instrumented, so its own synchronisation is invisible; tests/tsan.supp names the narrow rest.
        suppressions = context.root / "tests" / "tsan.supp"
        return {
            "TSAN_OPTIONS": f"ignore_noninstrumented_modules=1:suppressions={suppressions}:second_deadlock_stack=1:{log}"
        }
    return {}


def with_reports(result: Result, reports: pathlib.Path) -> Result:
    """Each report that a sanitizer wrote is a failure, wherever its process ended."""
    for report in sorted(reports.iterdir()):
        result.fail(f"{report.name}:\n{report.read_text(errors='replace')}")
    return result


def ctest(context: Context, preset: str, labels: list[str], env: dict[str, str] | None = None) -> Result:
    """Builds and runs the tests with one of the labels, and counts GoogleTest's cases one by one."""
    result = build(context, preset, [f"{label}_tests" for label in labels])
    if result.failed:
        return result
    cases, reports = context.scratch(f"{preset}-cases"), context.scratch(f"{preset}-reports")
    summary = cases / "ctest-summary.xml"
    command = ["ctest", "--test-dir", str(context.tree(preset)), "-L", f"^({'|'.join(labels)})$", "-j", str(context.jobs)]
    command += ["--output-on-failure", "--output-junit", str(summary), *context.extra]
    environment = {"GTEST_OUTPUT": f"json:{cases}/", "FOREBAY_SLOWNESS": SLOWNESS[preset]}
    environment |= sanitizer_environment(context, preset, reports) | (env or {})
    _, result.output = context.run(command, environment)
    programs = xml.etree.ElementTree.parse(summary).getroot().iter("testcase") if summary.exists() else []
    for program in programs:
        report = cases / f"{program.get('name')}.json"
        passed, failed = count_gtest(report) if report.exists() and report.stat().st_size else (0, 0)
        if program.get("status") != "run" and failed == 0:
            failed = 1
        elif not report.exists():
            passed = 1
        elif passed + failed == 0:
            result.fail(f"{program.get('name')} ran no test")
        result.passed += passed
        result.failed += failed
    return with_reports(result, reports)


def pytest(context: Context, folders: list[str], preset: str = "release", options: list[str] | None = None) -> Result:
    present = [f for f in folders if (context.root / f).exists()]
    if not present:
        return Result()
    cases, reports = context.scratch("pytest-cases"), context.scratch(f"{preset}-pytest-reports")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={cases}/pytest.xml"]
    environment = {"FOREBAY_BIN": str(context.tree(preset) / "bin"), "FOREBAY_SLOWNESS": SLOWNESS[preset]}
    environment |= sanitizer_environment(context, preset, reports)
    code, output = context.run([*command, *(options or []), *context.extra, *present], environment)
    if code == 5:  # nothing to collect; a suite that runs nothing at all fails all the same
        return Result()
    passed, failed = count_junit(cases / "pytest.xml") if (cases / "pytest.xml").exists() else (0, 0)
    if code != 0 and failed == 0:
        failed = 1
    return with_reports(Result(passed, failed, output), reports)


def run_build(context: Context) -> Result:
    result = build(context, "release", [])
    return result if result.failed else Result(passed=1)


def run_tidy(context: Context) -> Result:
    result = count_program(*context.run([sys.executable, "tools/tidy.py"]))
    result.add(count_program(*context.run([sys.executable, "tools/lint.py", "--format-only"])))
    mypy = [sys.executable, "-m", "mypy", "--config-file=python/pyproject.toml", "--cache-dir=build/mypy", "python/forebay"]
    result.add(count_program(*context.run(mypy)))
    result.add(pytest(context, ["tools", "bench"]))
    return result


def run_unit(context: Context) -> Result:
    return ctest(context, "release", ["unit"])


def run_transcripts(context: Context) -> Result:
    """With `-- --update` the files are written anew; the run fails where they changed, so that somebody reads them."""
    update = "--update" in context.extra
    context = dataclasses.replace(context, extra=[option for option in context.extra if option != "--update"])
    return ctest(context, "release", ["transcripts"], {"FOREBAY_UPDATE_TRANSCRIPTS": "1"} if update else None)


def run_python(context: Context) -> Result:
    result = build(context, "release", ["bufferd"])
    return result if result.failed else pytest(context, ["python/tests"])


def run_integration(context: Context) -> Result:
    """Against the real daemon: programs under tests/integration, and pytest's tests there."""
    result = build(context, "release", ["bufferd", "buffer-ctl"])
    if not result.failed:
        result.add(ctest(dataclasses.replace(context, extra=[]), "release", ["integration"]))
        result.add(pytest(context, ["tests/integration"]))
    return result


def run_examples(context: Context) -> Result:
    """The parts of the demo, and torch's own tensors; they need what `./dev setup demo` installs."""
    result = build(context, "release", ["bufferd"])
    return result if result.failed else pytest(context, ["examples"])


def simulator(
    context: Context, options: list[str], timeout: float, preset: str = "release", name: str = "simulate"
) -> Result:
    result = build(context, preset, [name])
    program = context.tree(preset) / "bin" / name
    if result.failed or not program.exists():
        return result
    reports = context.scratch(f"{preset}-{name}-reports")
    environment = sanitizer_environment(context, preset, reports)
    return with_reports(count_program(*context.run([str(program), *options], environment, timeout)), reports)


def run_crash(context: Context) -> Result:
    """Kills of a loaded daemon; a fresh schedule each time, whose seed is printed and replays."""
    result = build(context, "release", ["bufferd"])
    if result.failed:
        return result
    seed = ["--seed", context.seed] if context.seed else []
    command = [sys.executable, "tests/crash/main.py", "--rounds", str(context.rounds), *seed, *context.extra]
    environment = {"FOREBAY_BIN": str(context.tree("release") / "bin"), "PYTHONPATH": str(context.root / "python")}
    return count_program(*context.run(command, environment, SUITE_TIMEOUT_S + 20 * context.rounds))


CI_CHAOS = ["--rounds", "10", "--seed", "4"]


def run_chaos(context: Context) -> Result:
    """Faults of a real cluster under load. CI's share has a plan of its own; by hand it is a fresh one, whose seed replays."""
    result = build(context, "release", ["bufferd", "chaos_actor", "chaos_clock"])
    if result.failed:
        return result
    options = ["--rounds", str(context.rounds), *(["--seed", context.seed] if context.seed else [])]
    command = [sys.executable, "tests/chaos/main.py", *(options if context.by_hand else CI_CHAOS), *context.extra]
    environment = {"FOREBAY_BIN": str(context.tree("release") / "bin"), "PYTHONPATH": str(context.root / "python")}
    result = pytest(dataclasses.replace(context, extra=[]), ["tests/chaos"])
    # Each node has a network of its own. By hand that is demanded; a machine for CI may not grant it.
    apart = ["unshare", "--net", "--mount", "--propagation", "private", "--pid", "--fork", "--mount-proc", "true"]
    if not context.by_hand and context.run(apart)[0] != 0:
        print("chaos: NO ROUNDS WERE RUN, for this machine grants no network namespaces", flush=True)
        return result
    result.add(count_program(*context.run(command, environment, SUITE_TIMEOUT_S + 60 * context.rounds)))
    return result


def run_nfs(context: Context) -> Result:
    """The daemon in a virtual machine, with its store on a real NFS server."""
    result = build(context, "release", ["bufferd", "buffer-ctl"])
    if result.failed:
        return result
    command = [sys.executable, "tests/nfs/main.py", "--jobs", str(min(context.jobs, NFS_CASES_AT_ONCE)), *context.extra]
    environment = {"FOREBAY_BIN": str(context.tree("release") / "bin"), "PYTHONPATH": str(context.root / "python")}
    return count_program(*context.run(command, environment))


CI_SIM_MINUTES = 5
CI_CLUSTER_MINUTES = 5
CLUSTER = "simulate-cluster"
# Some of them under AddressSanitizer: for the bytes that they touch, not for the rules.
ASAN_SIM_HISTORIES = ["--seed", "3216107517", "--histories", "60"]


def seed_of_source(context: Context) -> str | None:
    """Other histories for each state of the sources, the same ones whenever that state is tested again."""
    code, tree = context.run(["git", "rev-parse", "HEAD:src"])
    return str(int(tree.splitlines()[-1][:8], 16)) if code == 0 else None


def run_sim(context: Context) -> Result:
    """Histories by hand are fresh ones; the seed is printed and replays."""
    chosen = context.seed if context.by_hand else seed_of_source(context)
    seed = ["--seed", chosen] if chosen else []
    if not context.by_hand:
        result = simulator(context, ["--minutes", str(CI_SIM_MINUTES), *seed], 900)
        result.add(simulator(context, ["--minutes", str(CI_CLUSTER_MINUTES), *seed], 900, name=CLUSTER))
        return result
    options = ["--minutes", str(context.minutes), *seed, *context.extra]
    return simulator(context, options, context.minutes * 60 + 300, name=CLUSTER if context.cluster else "simulate")


def run_simulation(context: Context) -> Result:
    """The tests of the simulators themselves, and of the cluster's that each rule switched off is noticed."""
    return ctest(context, "release", ["simulation", "cluster_simulation"])


def run_mutations(context: Context) -> Result:
    """Each rule switched off in turn: the invariant named after it must notice."""
    name = CLUSTER if context.cluster else "simulate"
    return simulator(context, ["--mutations", *context.extra], 600, name=name)


def run_fuzz(context: Context) -> Result:
    """By hand libFuzzer; in CI's share the same fuzzers replay corpus and seeded mutations in the ASan build."""
    if not context.by_hand:
        return ctest(context, ASAN, ["fuzz"], {"FOREBAY_FUZZ_SECONDS": str(context.seconds)})
    result = build(context, "fuzz", ["fuzz_tests"])
    if result.failed:
        return result
    for program in sorted(context.tree("fuzz").glob("bin/*_fuzz")):
        name = program.name.removesuffix("_fuzz")
        found = context.tree("fuzz") / "corpus" / name
        found.mkdir(parents=True, exist_ok=True)
        corpus = [str(found), *map(str, context.root.glob(f"tests/fuzz/corpus/{name}"))]
        options = [f"-max_total_time={context.seconds}", f"-artifact_prefix={found.parent}/{name}-", "-print_final_stats=1"]
        result.add(count_program(*context.run([str(program), *options, *context.extra, *corpus], timeout=context.seconds + 120)))
    return result


def run_asan(context: Context) -> Result:
    """Everything but the long simulation."""
    result = ctest(context, ASAN, ["unit", "transcripts", "simulation", "cluster_simulation", "integration"])
    context = dataclasses.replace(context, extra=[])
    result.add(simulator(context, ASAN_SIM_HISTORIES, 600, ASAN))
    return against_sanitized_daemon(context, ASAN, result)


def run_tsan(context: Context) -> Result:
    """What has threads, and whether a race would be found; the pure core has none."""
    result = ctest(context, "tsan", ["threads", "tsan"])
    return against_sanitized_daemon(dataclasses.replace(context, extra=[]), "tsan", result)


def against_sanitized_daemon(context: Context, preset: str, result: Result) -> Result:
    """Adds Python's tests, against a daemon of that preset."""
    built = build(context, preset, ["bufferd", "buffer-ctl"])
    result.add(built)
    if not built.failed:
        result.add(pytest(context, ["python/tests", "tests/integration"], preset))
    return result


SUITES: dict[str, Callable[[Context], Result]] = {
    "build": run_build,
    "tidy": run_tidy,
    "unit": run_unit,
    "transcripts": run_transcripts,
    "simulation": run_simulation,
    "mutations": run_mutations,
    "python": run_python,
    "integration": run_integration,
    "examples": run_examples,
    "crash": run_crash,
    "chaos": run_chaos,
    "nfs": run_nfs,
    "sim": run_sim,
    "fuzz": run_fuzz,
    "asan": run_asan,
    "tsan": run_tsan,
}
# CI's share in its order: first what wants the machine for itself, then what shares it with ten minutes of simulation.
QUIET = ["tidy", "unit", "transcripts", "simulation", "mutations", "python", "integration", "crash", "chaos"]
# asan and tsan run by hand, and before a release: whole builds of their own, which take longer than all the rest together. So
# does nfs: it wants root, and its emulated machine misses its deadlines where the processors are busy. And examples: torch is
# larger than all that the other suites install.
BESIDE_SIMULATION = ["fuzz"]
