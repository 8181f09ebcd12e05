"""The same run on a cluster of three nodes, of which the leading one is killed again and again: it learns all the same.

    ./dev demo --cluster [--steps 40] [--kills 3]

Needs what ./dev cluster needs (etcd). The exit status is 0 if the pass rate has risen by more than three standard errors.
"""

import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

import forebay as fb
import torch
from model import Transformer, save
from run import HERE, SOURCES, Processes, evaluate, free_port, start_actor, start_trainers
from tasks import make_tasks
from warm_start import warm_start

ROOT = pathlib.Path(HERE).parent.parent
BIN = ROOT / "build" / "release" / "bin"


def start_cluster(processes, data, args):
    """Returns the addresses of its nodes, with commas, once one of them leads."""
    port = free_port()
    processes.start("cluster", sys.executable, str(ROOT / "tools" / "cluster.py"), "--dir", data, "--port", str(port))
    deadline = time.monotonic() + 60
    log = pathlib.Path(args.out) / "cluster.log"
    while True:
        processes.check()
        for word in log.read_text().split():
            if word.count(":") == 3 and word.count(",") == 2:
                return word
        if time.monotonic() > deadline:
            sys.exit(f"the cluster did not begin within 60 s; see {log}")
        time.sleep(0.2)


def leader(address):
    """The number of the node that leads; None while that is not known."""
    command = [str(BIN / "buffer-ctl"), "--address", address, "--timeout", "2", "-o", "json", "nodes"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        return None
    return json.loads(done.stdout)["state"].get("leader")


def kill_node(data, node):
    """kill -9 of one of this cluster's own daemons; it is started again by itself."""
    wanted = {f"--cluster.node={node}", f"--storage.directory={data}/node-{node}"}
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = set((process / "cmdline").read_bytes().decode(errors="replace").split("\0"))
        except OSError:
            continue  # it has ended
        if wanted <= words:
            os.kill(int(process.name), signal.SIGKILL)
            return True
    return False


def train(processes, run, address, data, args):
    trainers = start_trainers(processes, address, args)
    start, killed = time.monotonic(), 0
    while any(trainer.poll() is None for trainer in trainers):
        if time.monotonic() > start + 60 * args.minutes:
            sys.exit(f"the trainers did not come to their end within {args.minutes:g} minutes; see {args.out}")
        time.sleep(0.5)
        processes.check()
        done = run.status().published.number / args.steps
        if killed < args.kills and done >= (killed + 1) / (args.kills + 1):
            node = leader(address)
            if node is not None and kill_node(data, node):
                killed += 1
                print(f"  step {round(done * args.steps)}: kill -9 node {node}, which leads")
    print(f"  {args.steps} steps in {time.monotonic() - start:.0f} s, {killed} leaders killed")
    return killed


def main(args):
    sys.stdout.reconfigure(line_buffering=True)
    os.makedirs(args.out, exist_ok=True)
    for old in pathlib.Path(args.out).glob("*"):
        if old.suffix in (".log", ".pt"):
            old.unlink()
    torch.manual_seed(args.seed)
    training = {source: make_tasks(source, 3000, seed=args.seed + 1) for source in SOURCES}
    held_out = [t for source in SOURCES for t in make_tasks(source, 150, seed=0, held_out=True)]
    model = Transformer()
    warm_start(model, sum(training.values(), []), seed=args.seed)
    save(model, f"{args.out}/version-0.pt")

    with tempfile.TemporaryDirectory(prefix="forebay-demo-") as data, Processes(args.out) as processes:
        address = start_cluster(processes, data, args)
        print(f"three nodes at {address}; logs and weights in {args.out}")
        run = fb.connect(address)
        for i in (1, 2, 3):
            start_actor(processes, f"actor-{i}", address, args)
        run.load("held-out", held_out, purpose="eval")
        before = evaluate(run, 0, "before RL", [])
        for source, tasks in training.items():
            run.load(source, tasks, group_size=16, max_lag=2)
        killed = train(processes, run, address, data, args)
        after = evaluate(run, run.status().published.number, "after RL", [])

    rise = after.mean - before.mean
    error = (before.standard_error**2 + after.standard_error**2) ** 0.5
    print(f"rise {rise:+.1%}, which is {rise / error:.1f} standard errors, over {killed} killed leaders")
    return 0 if rise > 3 * error and killed == args.kills else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default=str(ROOT / "build" / "demo-cluster"), help="folder for weights and logs")
    parser.add_argument("--steps", type=int, default=40, help="training steps")
    parser.add_argument("--minutes", type=float, default=10, help="fail if training takes longer")
    parser.add_argument("--kills", type=int, default=3, help="leaders that are killed, at equal distances")
    parser.add_argument("--slots", type=int, default=64, help="attempts that an actor runs at once")
    parser.add_argument("--seed", type=int, default=0)
    sys.exit(main(parser.parse_args()))
