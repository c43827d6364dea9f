"""Where the host's time of a ready call of maxdnn.torch goes, beside PyTorch's own call of the same layer in the same
run: python benchmarks/host_time.py [--json FILE]. Needs a CUDA GPU. Times are medians of runs of calls, the GPU is let
catch up in between, so that no queue is ever full."""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

RUNS, CALLS = 60, 20
LAYERS = {"1x1, 64 to 64, 14 x 14": (64, 14, 64, 1), "3x3, 64 to 64, 14 x 14": (64, 14, 64, 3),
          "3x3, 256 to 256, 14 x 14": (256, 14, 256, 3)}


def microseconds(*calls: Callable[[], Any]) -> list[float]:
    """Of each call, which take turns."""
    import torch

    times: list[list[float]] = [[] for _ in calls]
    for _ in range(RUNS):
        for call, found in zip(calls, times, strict=True):
            begun = time.perf_counter()
            for _ in range(CALLS):
                call()
            found.append(1e6 * (time.perf_counter() - begun) / CALLS)
            torch.cuda.synchronize()
    return [statistics.median(found[RUNS // 6:]) for found in times]


def parts(x: Any, w: Any) -> dict[str, Callable[[], Any]]:
    """What a ready call without derivatives does, one after the other, and each by itself."""
    import torch

    import maxdnn.torch as mt
    from maxdnn.runtime import engine
    from maxdnn.runtime.devices import find
    from maxdnn.torch import ops, running

    how = (1, 0, 1, 1, "auto", mt.Conv2d.max_error, "auto")
    ready = ops._eager.get((x.shape, w.shape, None, x.get_device(), how))
    assert ready is not None, "the call is not ready"
    plan, on = ready._plan, engine.of(find.gpu(x.get_device()))
    loaded, out = on.loaded(plan), mt.conv2d(x, w)
    stream = torch.cuda.current_stream().cuda_stream
    places = {"images": x.data_ptr(), "filters": w.data_ptr(), "out": out.data_ptr()}
    raw = torch._C._cuda_cudaCachingAllocator_raw_alloc
    give = torch._C._cuda_cudaCachingAllocator_raw_delete
    room = raw(max(plan.workspace_bytes, 512), stream)
    known = ready.known[0][0].check if ready.known else lambda *given: ops.plain(given)
    found = {
        "is it a plain call (types, dtype, modes, autocast)": lambda: known(x, w),
        "find what is ready": lambda: ops._eager.get((x.shape, w.shape, None, x.get_device(), how)),
        "addresses of the operands": lambda: (x.data_ptr() % 16, x.get_device(), w.data_ptr() % 16, w.get_device()),
        "a tensor for the result": lambda: running.empty(x, ready._shape) if running._new is None else running._new(
            ready._shape, ready._strides, torch.float32),
        "the current stream": lambda: torch._C._cuda_getCurrentRawStream(0),
        "find what is loaded": lambda: on.loaded(plan)}
    if plan.workspace_bytes:
        found["workspace, taken and given back"] = lambda: give(raw(plan.workspace_bytes, stream))
    found["addresses into the launches, and the driver"] = lambda: loaded.run(dict(places), room, running._ONE, stream)
    found["  of which the driver"] = lambda: loaded._go(stream, 0)
    return found


def table(shape: tuple[int, int, int, int]) -> dict[str, Any]:
    """Rows of one layer, of one image."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    import maxdnn.torch as mt
    from maxdnn.torch import ops

    torch.backends.cudnn.allow_tf32, torch.backends.cudnn.benchmark = False, True
    ops._eager.clear()
    c, hw, k, rs = shape
    x, w = torch.rand(1, c, hw, hw, device="cuda"), torch.rand(k, c, rs, rs, device="cuda")
    wanting = w.clone().requires_grad_()
    layer = nn.Conv2d(c, k, rs, bias=False).cuda()
    frozen = mt.replace(nn.Conv2d(c, k, rs, bias=False).cuda(), frozen=True)
    with torch.inference_mode():
        for _ in range(4):
            mt.conv2d(x, w), F.conv2d(x, w), layer(x), frozen(x)
        (plan,) = {ready._plan for ready in ops._eager.values()}
        names = list(every := parts(x, w))
        rows: dict[str, Any] = {"launches": len(plan.launches), "plan": plan.name}
        rows["parts"] = dict(zip(names, microseconds(*every.values()), strict=True))
        rows["conv2d"], rows["PyTorch's conv2d"] = microseconds(lambda: mt.conv2d(x, w), lambda: F.conv2d(x, w))
        rows["frozen layer"], rows["PyTorch's layer"] = microseconds(lambda: frozen(x), lambda: layer(x))
    for _ in range(4):
        mt.conv2d(x, wanting), F.conv2d(x, wanting)
    rows["conv2d, with derivatives"], rows["PyTorch's conv2d, with derivatives"] = microseconds(
        lambda: mt.conv2d(x, wanting), lambda: F.conv2d(x, wanting))
    return rows


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    every: dict[str, Any] = {}
    for name, shape in LAYERS.items():
        rows = every[name] = table(shape)
        print(f"{name}: {rows['plan']}, {rows['launches']} launches; microseconds of the host")
        for part, value in rows["parts"].items():
            print(f"  {part:55} {value:6.2f}")
        for what in ("conv2d", "layer", "conv2d, with derivatives"):
            ours = rows["frozen layer" if what == "layer" else what]
            theirs = rows[f"PyTorch's {what}"]
            print(f"  {what + ', ours and PyTorch' + chr(39) + 's':55} {ours:6.2f} {theirs:6.2f}  {ours / theirs:.2f}")
        if args.json:
            args.json.write_text(json.dumps(every, indent=1) + "\n")


if __name__ == "__main__":
    main()
