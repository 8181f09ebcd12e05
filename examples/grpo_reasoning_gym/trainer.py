"""One data-parallel rank of the trainer. Start it with torchrun, or as run.py does:

torchrun --nproc-per-node 2 trainer.py --weights warm_start.pt --out weights/
"""

import argparse
import os

import forebay as fb
import torch
import torch.distributed as dist

from loss import pg_sum
from model import Transformer, load, save


def sum_gradients(model):
    """Add the gradients of all ranks up, in one message. (A bigger model would use DDP or FSDP.)"""
    parameters = list(model.parameters())
    flat = torch.cat(
        [torch.zeros_like(p).flatten() if p.grad is None else p.grad.flatten() for p in parameters]
    )
    dist.all_reduce(flat)
    for p, part in zip(parameters, flat.split([p.numel() for p in parameters])):
        p.grad = part.view_as(p)


def main(args):
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    model = Transformer()
    load(model, args.weights)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=args.lr, betas=(0.9, 0.95), weight_decay=0.0
    )
    run = fb.connect(args.address)
    mesh = fb.Mesh(dp=ranks, dp_rank=rank)
    with run.trainer(mesh=mesh, groups=args.groups, token_budget=args.token_budget) as t:
        for step in t.steps():  # fetches ahead; an exception aborts the step
            optimizer.param_groups[0]["lr"] = args.lr * min(1, step.number / 10)
            for mini in step.mini_batches():
                for mb in mini:
                    (pg_sum(model, mb.torch("cpu")) / mini.loss_tokens).backward()
                sum_gradients(model)
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
            step.commit()  # takes effect once, whichever rank comes first
            if rank == 0:
                path = os.path.join(args.out, f"version-{step.next_version.number}.pt")
                save(model, path)
                t.publish(step.next_version, where=path)
                print(step, flush=True)
            if step.number >= args.steps:
                break


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--address", default="127.0.0.1:7400")
    parser.add_argument("--weights", required=True, help="the weights of version 0")
    parser.add_argument(
        "--out", default=".", help="where new weights go; actors must be able to read it"
    )
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--groups", type=int, default=32, help="groups of 16 attempts in a step")
    parser.add_argument("--token-budget", type=int, default=2048, help="tokens of a micro-batch")
    parser.add_argument("--lr", type=float, default=1e-3)
    main(parser.parse_args())
