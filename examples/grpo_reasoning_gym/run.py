"""The whole loop on one machine: daemon, actors, trainers, evaluations before and after, a plot.

./dev demo          or          python examples/grpo_reasoning_gym/run.py --help
"""

import argparse
import glob
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
# Many small processes share few cores, so each computes in one thread; set before torch is loaded.
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import forebay as fb
import torch

import metrics
from model import Transformer, save
from tasks import SOURCES, make_tasks
from warm_start import warm_start


class Processes:
    """Child processes by name, each with a log file; all are ended when the block is left."""

    def __init__(self, logs):
        self.logs, self.running = logs, {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.running.values():
            process.terminate()
        for process in self.running.values():
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()

    def start(self, name, *command, **environment):
        with open(os.path.join(self.logs, f"{name}.log"), "ab") as log:
            self.running[name] = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, env={**os.environ, **environment}
            )

    def kill(self, name):
        process = self.running.pop(name)
        process.kill()
        process.wait()

    def check(self):
        """Leave with an explanation if a process has failed."""
        for name, process in self.running.items():
            if process.poll():
                with open(os.path.join(self.logs, f"{name}.log"), errors="replace") as log:
                    tail = "".join(log.readlines()[-20:])
                sys.exit(f"{name} ended with {process.returncode}:\n{tail}")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def start_daemon(processes, args, grpc, http, data):
    """Starts it, or starts it again on the same directory; returns once it is ready."""
    processes.start(
        "bufferd",
        args.bufferd,
        f"--listen.grpc={grpc}",
        f"--listen.http={http}",
        "--listen.unix=",
        f"--storage.directory={data}",
    )
    deadline = time.monotonic() + 20
    while True:
        processes.check()
        try:
            urllib.request.urlopen(f"http://{http}/readyz", timeout=1).close()
            return
        except (urllib.error.URLError, OSError):
            if time.monotonic() > deadline:
                sys.exit("bufferd was not ready after 20 s; see " + processes.logs)
            time.sleep(0.1)


def start_actor(processes, name, address, args):
    processes.start(
        name,
        sys.executable,
        f"{HERE}/actor.py",
        f"--address={address}",
        f"--name={name}",
        f"--weights={args.out}/version-0.pt",
        f"--slots={args.slots}",
    )


def start_trainers(processes, address, args, ranks=2):
    port = str(free_port())
    for rank in range(ranks):
        processes.start(
            f"trainer-{rank}",
            sys.executable,
            f"{HERE}/trainer.py",
            f"--address={address}",
            f"--weights={args.out}/version-0.pt",
            f"--out={args.out}",
            f"--steps={args.steps}",
            RANK=str(rank),
            WORLD_SIZE=str(ranks),
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=port,
            GLOO_SOCKET_IFNAME="lo",
        )
    return [processes.running[f"trainer-{rank}"] for rank in range(ranks)]


def evaluate(run, version, when, evals):
    result = run.start_eval("held-out", version=version, attempts=4).wait(timeout=120)
    print(
        f"pass rate on held-out tasks {when}: {result.mean:.1%} +- {result.standard_error:.1%} "
        f"(version {version}, {result.rollouts} sampled attempts at {result.tasks} tasks)"
    )
    evals.append((time.monotonic(), result.mean, result.standard_error))
    return result


def replace_actor(processes, address, args):
    print("  kill -9 actor-1; actor-4 starts; the lost attempts go out again when leases end")
    processes.kill("actor-1")
    start_actor(processes, "actor-4", address, args)


def restart_daemon(processes, args, address, http, data):
    """Nobody else is told: actors and trainers wait, and go on."""
    processes.kill("bufferd")
    start = time.monotonic()
    start_daemon(processes, args, address, http, data)
    print(f"  kill -9 bufferd; it is back after {time.monotonic() - start:.1f} s; the run goes on")


def train(processes, run, address, http, data, args):
    """Runs the trainers to their end; kills an actor and the daemon on the way. Returns samples of the metrics."""
    trainers = start_trainers(processes, address, args)
    page = f"http://{http}/metrics"
    samples = [metrics.sample(page)]
    start, seconds = time.monotonic(), args.minutes * 60
    # At these shares of the run, by its steps or by its time.
    accidents = [
        (1 / 3, lambda: replace_actor(processes, address, args)),
        (1 / 2, lambda: restart_daemon(processes, args, address, http, data)),
    ]
    while any(t.poll() is None for t in trainers) and time.monotonic() < start + seconds:
        time.sleep(1)
        processes.check()
        samples.append(metrics.sample(page))
        if len(samples) % 3 == 0:
            print(metrics.progress(samples[0], samples[max(0, len(samples) - 6)], samples[-1]))
        done = max(
            run.status().published.number / args.steps, (time.monotonic() - start) / seconds
        )
        if accidents and done >= accidents[0][0]:
            accidents.pop(0)[1]()
    if any(t.poll() is None for t in trainers):
        print(f"  {args.minutes:g} minutes are over: the trainers stop here")
        for rank in range(len(trainers)):
            processes.kill(f"trainer-{rank}")
    return samples


def main(args):
    sys.stdout.reconfigure(line_buffering=True)
    os.makedirs(args.out, exist_ok=True)
    for old in glob.glob(f"{args.out}/version-*.pt") + glob.glob(f"{args.out}/*.log"):
        os.remove(old)
    torch.manual_seed(args.seed)
    training = {source: make_tasks(source, 3000, seed=args.seed + 1) for source in SOURCES}
    held_out = [t for source in SOURCES for t in make_tasks(source, 150, seed=0, held_out=True)]
    model = Transformer()
    print("supervised warm start, stopped on purpose at a mediocre pass rate:")
    warm_start(model, sum(training.values(), []), seed=args.seed)
    save(model, f"{args.out}/version-0.pt")

    evals = []
    address, http = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    with tempfile.TemporaryDirectory(prefix="forebay-demo-") as data, Processes(args.out) as processes:
        start_daemon(processes, args, address, http, data)
        print(f"bufferd on {address}, metrics on http://{http}/metrics; logs and weights in {args.out}")
        run = fb.connect(address)
        for i in (1, 2, 3):
            start_actor(processes, f"actor-{i}", address, args)
        run.load("held-out", held_out, purpose="eval")
        before = evaluate(run, 0, "before RL", evals)
        for source, tasks in training.items():
            run.load(source, tasks, group_size=16, max_lag=2)
        samples = train(processes, run, address, http, data, args)
        after = evaluate(run, run.status().published.number, "after RL", evals)
        samples.append(metrics.sample(f"http://{http}/metrics"))

    metrics.plot(f"{args.out}/demo.png", samples, SOURCES, evals)
    rise = after.mean - before.mean
    error = (before.standard_error**2 + after.standard_error**2) ** 0.5
    print(
        f"rise {rise:+.1%}, which is {rise / error:.1f} standard errors; plot: {args.out}/demo.png"
    )
    return 0 if rise > 3 * error else 1


if __name__ == "__main__":
    build = os.path.join(HERE, "..", "..", "build")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bufferd", default=os.path.normpath(f"{build}/release/bin/bufferd"))
    parser.add_argument(
        "--out", default=os.path.normpath(f"{build}/demo"), help="folder for weights, logs and plot"
    )
    parser.add_argument("--steps", type=int, default=120, help="training steps")
    parser.add_argument(
        "--minutes", type=float, default=2.5, help="stop training after this long, whatever the step"
    )
    parser.add_argument("--slots", type=int, default=128, help="attempts at once per actor")
    parser.add_argument("--seed", type=int, default=0)
    sys.exit(main(parser.parse_args()))
