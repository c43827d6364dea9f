"""Training over two GPUs with torch.nn.parallel.DistributedDataParallel: each process has half of every batch, and the
losses are those of one GPU with the whole of it, float32 order aside. What order does is measured, too, by one GPU with
PyTorch's own convolutions: training magnifies any rounding, since it turns ReLUs on and off. The seconds of a step are
the median of the second half of the steps.

Where there are no two GPUs, two processes train a small network on the virtual GPU. Prints the losses of all and the
seconds of a step; exit status 1 if those of two are farther from those of one than TOLERANCE and than 4 times what
order does."""

import argparse
import gc
import json
import os
import socket
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from gpu_baselines import needed

WORLD = 2
TOLERANCE = 2e-4  # relative, of the loss of a step
NETWORKS = "alexnet", "vgg16", "unet"  # no batch norms, which see half of a batch


def model_of(network: str) -> tuple[Any, tuple[int, ...]]:
    """A model, the same in every process, and the size of its images; "small" is for the virtual GPU."""
    import torch
    from torch import nn

    from maxdnn.torch.networks import Network
    torch.manual_seed(1)
    if network == "small":
        return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, stride=2), nn.ReLU(),
                             nn.Flatten(), nn.Linear(72, 10)), (3, 8, 8)
    model = Network(network)
    return model, model.image


def train(device: Any, network: str, batch: int, steps: int, rank: int = 0, world: int = 1,
          own: bool = True) -> tuple[list[float], float]:
    """The losses of the steps and the median seconds of one. Every process makes the same network and the same
    batches, and takes its part of each; the losses are of the whole batch. `own`: by this library's convolutions."""
    import torch
    from torch.nn import functional as F

    import maxdnn.torch
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    model, image = model_of(network)
    model = (maxdnn.torch.replace(model) if own else model).to(device)
    if world > 1:
        where = [device.index] if device.type == "cuda" else None
        model = torch.nn.parallel.DistributedDataParallel(model, device_ids=where)
    optimizer = torch.optim.SGD(model.parameters(), 0.01 if network == "small" else 1e-4, momentum=0.9)
    generator = torch.Generator(device).manual_seed(2)
    mine = slice(rank * batch // world, (rank + 1) * batch // world)
    losses, times = [], []
    for _ in range(steps):
        x = torch.rand(batch, *image, generator=generator, device=device)[mine]
        y = torch.randint(10, (batch,), generator=generator, device=device)[mine]
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        begun = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        out = model(x)
        # The mean over classes of each image too where a network gives maps (U-Net).
        loss = F.cross_entropy(out if out.dim() == 2 else out.mean((2, 3)), y % out.shape[1])
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
    import torch
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
        gc.collect()  # the model, which holds the group: its threads must be gone before Python's end
        torch.distributed.barrier(device_ids=[rank] if on_gpu else None)
    finally:
        torch.distributed.destroy_process_group()


def compared(options: argparse.Namespace) -> dict[str, Any]:
    """Train both ways."""
    import torch
    context = torch.multiprocessing.get_context("spawn")
    found = context.SimpleQueue()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torch.multiprocessing.spawn(process, (port, options, found), WORLD)
    losses, seconds = found.get()
    device = torch.device("cpu") if options.network == "small" else torch.device("cuda", 0)
    whole = device, options.network, options.batch, options.steps
    alone, seconds_alone = train(*whole)
    stock, seconds_stock = train(*whole, own=False)
    return {"what": "virtual GPU" if device.type == "cpu" else torch.cuda.get_device_name(device),
            "torch": torch.__version__, "network": options.network, "batch": options.batch, "losses": losses,
            "losses_alone": alone, "losses_stock": stock, "difference": _farthest(losses, alone),
            "difference_by_order": _farthest(stock, alone), "step_seconds": seconds,
            "step_seconds_alone": seconds_alone, "step_seconds_stock": seconds_stock}


def _farthest(losses: list[float], others: list[float]) -> float:
    """The largest relative difference."""
    return max(abs(one - other) / abs(other) for one, other in zip(losses, others, strict=True))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--network", choices=("small", *NETWORKS),
                        help="small: on the virtual GPU; the others need two GPUs (default: alexnet if there are)")
    parser.add_argument("--batch", type=int, help="of both together (default: 256, small: 4)")
    parser.add_argument("--steps", type=int, help="(default: 20, small: 3)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there, too")
    options = parser.parse_args()
    gpus = needed("torch", "'maxdnn[torch,cuda]'").cuda.device_count()
    options.network = options.network or ("alexnet" if gpus >= WORLD else "small")
    small = options.network == "small"
    if not small and gpus < WORLD:
        parser.error(f"--network {options.network} needs {WORLD} GPUs (PyTorch finds {gpus}); small runs without")
    options.batch, options.steps = options.batch or (4 if small else 256), options.steps or (3 if small else 20)
    if options.batch % WORLD or options.batch < WORLD or options.steps < 1:
        parser.error(f"--batch must be even and --steps at least 1 (got {options.batch} and {options.steps})")
    result = compared(options)
    every = zip(result["losses"], result["losses_alone"], result["losses_stock"], strict=True)
    for step, (two, one, stock) in enumerate(every):
        print(f"step {step}: two {two:.6f}, one {one:.6f}, one by PyTorch's convolutions {stock:.6f}")
    print(f"{options.network} on {result['what']}, batch {options.batch}: largest relative difference of a loss "
          f"{result['difference']:.1e}, by order alone {result['difference_by_order']:.1e}; a step takes "
          f"{1e3 * result['step_seconds']:.1f} ms on two, {1e3 * result['step_seconds_alone']:.1f} ms on one, "
          f"{1e3 * result['step_seconds_stock']:.1f} ms there by PyTorch's convolutions")
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    return 0 if result["difference"] <= max(TOLERANCE, 4 * result["difference_by_order"]) else 1


if __name__ == "__main__":
    sys.exit(main())
