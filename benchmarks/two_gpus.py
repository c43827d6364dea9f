"""Training over two GPUs with torch.nn.parallel.DistributedDataParallel: each process has half of every batch, and the
losses are those of one GPU with the whole of it, float32 order aside.

Where there are no two GPUs, two processes train a small network on the virtual GPU. Prints the losses of both and the
seconds of a step; exit status 1 if the losses are not the same."""

import argparse
import json
import os
import socket
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

import maxdnn.torch
from maxdnn.torch.networks import Network

WORLD = 2
TOLERANCE = 2e-4  # relative, of a loss after all steps


class Small(nn.Sequential):
    """For the virtual GPU."""

    image = 3, 8, 8

    def __init__(self) -> None:
        super().__init__(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, stride=2), nn.ReLU(),
                         nn.Flatten(), nn.Linear(72, 10))


def train(device: torch.device, network: str, batch: int, steps: int, rank: int,
          world: int) -> tuple[list[float], float]:
    """The losses of the steps and the median seconds of one. Every process makes the same network and the same
    batches, and takes its part of each; the losses are of the whole batch."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.manual_seed(1)
    model: Any = Small() if network == "small" else Network(network)
    image = model.image
    model = maxdnn.torch.replace(model).to(device)
    if world > 1:
        model = DistributedDataParallel(model, device_ids=[device.index] if device.type == "cuda" else None)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    generator = torch.Generator().manual_seed(2)
    mine = slice(rank * batch // world, (rank + 1) * batch // world)
    losses, times = [], []
    for _ in range(steps):
        images = torch.rand(batch, *image, generator=generator)
        labels = torch.randint(10, (batch,), generator=generator)
        x, y = images[mine].to(device), labels[mine].to(device)
        begun = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        total = loss.detach() / world
        if world > 1:
            torch.distributed.all_reduce(total)
        losses.append(total.item())  # waits for the step
        times.append(time.perf_counter() - begun)
    return losses, statistics.median(times[steps // 2:])


def process(rank: int, port: int, options: argparse.Namespace, found: Any) -> None:
    """One of the processes of the two."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    on_gpu = options.network != "small"
    device = torch.device("cuda", rank) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    torch.distributed.init_process_group("nccl" if on_gpu else "gloo", rank=rank, world_size=WORLD)
    try:
        result = train(device, options.network, options.batch, options.steps, rank, WORLD)
        if rank == 0:
            found.put(result)
    finally:
        torch.distributed.destroy_process_group()


def main() -> int:
    two = torch.cuda.device_count() >= WORLD
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--network", default="alexnet" if two else "small",
                        help="small (on the virtual GPU), or alexnet vgg16 unet on two GPUs (no batch norms, which see "
                             "half of a batch)")
    parser.add_argument("--batch", type=int, default=256 if two else 4, help="of both together")
    parser.add_argument("--steps", type=int, default=20 if two else 3)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there, too")
    options = parser.parse_args()
    context = torch.multiprocessing.get_context("spawn")
    found = context.SimpleQueue()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torch.multiprocessing.spawn(process, (port, options, found), WORLD)
    losses, seconds = found.get()
    device = torch.device("cpu") if options.network == "small" else torch.device("cuda", 0)
    alone, seconds_alone = train(device, options.network, options.batch, options.steps, 0, 1)
    difference = max(abs(one - other) / abs(other) for one, other in zip(losses, alone, strict=True))
    result = {"what": "virtual GPU" if device.type == "cpu" else torch.cuda.get_device_name(device),
              "network": options.network, "batch": options.batch, "losses": losses, "losses_alone": alone,
              "largest_relative_difference": difference, "step_seconds": seconds, "step_seconds_alone": seconds_alone}
    for step, (one, other) in enumerate(zip(losses, alone, strict=True)):
        print(f"step {step}: two {one:.6f}, one {other:.6f}")
    print(f"{options.network} on {result['what']}, batch {options.batch}: largest relative difference of a loss "
          f"{difference:.1e}; a step takes {1e3 * seconds:.1f} ms on two, {1e3 * seconds_alone:.1f} ms on one")
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    return 0 if difference < TOLERANCE else 1


if __name__ == "__main__":
    sys.exit(main())
