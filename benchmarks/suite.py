"""The convolutions people run, on a real GPU: maxdnn beside every algorithm of cuDNN, and what PyTorch takes after its
own search, in FP32 and in TF32, in one run. Whole calls on N,C,H,W arrays (ours on C,H,W,N ones, if asked for), every
distinct convolution of AlexNet, Overfeat, VGG-E and ResNet-50, or, as --suite large, those of large.py. Calls are
captured into CUDA graphs, all libraries alike, so that the host's share is in none; medians of event times. Outputs are
compared with float64 on the same GPU.

Needs pycuda, nvidia-ml-py, PyTorch and cuDNN 9. Writes rows as they come; rows of other measurements in the file are
kept."""

import argparse
import dataclasses
import itertools
import json
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import large
from gpu_baselines import ALGORITHMS, DIRECT_FAMILY, ClockSampler, Cudnn, CudnnError, gpu_device, needed
from suite_gradients import gradient_row

import maxdnn
from maxdnn import ConvShape
from maxdnn.algorithms import registry
from maxdnn.layers import LAYERS
from maxdnn.planning.plan import Plan
from maxdnn.planning.select import choose
from maxdnn.problem.problem import Problem, forward

# C, H=W, K, R=S, stride, padding of every distinct convolution (Simonyan and Zisserman 2014, table 1, E; He et al.
# 2015, table 1, 50 layers, with the stride in the 3x3 convolution as frameworks have it).
VGG_E = ((3, 224, 64, 3, 1, 1), (64, 224, 64, 3, 1, 1), (64, 112, 128, 3, 1, 1), (128, 112, 128, 3, 1, 1),
         (128, 56, 256, 3, 1, 1), (256, 56, 256, 3, 1, 1), (256, 28, 512, 3, 1, 1), (512, 28, 512, 3, 1, 1),
         (512, 14, 512, 3, 1, 1))
RESNET_50 = ((3, 224, 64, 7, 2, 3), (64, 56, 64, 1, 1, 0), (64, 56, 64, 3, 1, 1), (64, 56, 256, 1, 1, 0),
             (256, 56, 64, 1, 1, 0), (256, 56, 128, 1, 1, 0), (128, 56, 128, 3, 2, 1), (128, 28, 512, 1, 1, 0),
             (256, 56, 512, 1, 2, 0), (512, 28, 128, 1, 1, 0), (128, 28, 128, 3, 1, 1), (512, 28, 256, 1, 1, 0),
             (256, 28, 256, 3, 2, 1), (256, 14, 1024, 1, 1, 0), (512, 28, 1024, 1, 2, 0), (1024, 14, 256, 1, 1, 0),
             (256, 14, 256, 3, 1, 1), (1024, 14, 512, 1, 1, 0), (512, 14, 512, 3, 2, 1), (512, 7, 2048, 1, 1, 0),
             (1024, 14, 2048, 1, 2, 0), (2048, 7, 512, 1, 1, 0), (512, 7, 512, 3, 1, 1))
CALLS = 10  # in a graph


KEYS = ("layer", "n", "pass", "layout")
"""What tells rows of the results apart."""


def shapes(n: int) -> Iterator[tuple[str, ConvShape]]:
    """(name, layer) of every convolution at minibatch n."""
    for layer in LAYERS:
        s = layer.shape
        yield f"{layer.network}-{layer.name}", ConvShape(n, s.C, s.H, s.W, s.K, s.R, s.S, s.stride, s.padding)
    for network, rows in (("vgg-e", VGG_E), ("resnet-50", RESNET_50)):
        for c, hw, k, r, stride, padding in rows:
            name = f"{network}-{c}-{hw}-{k}-{r}x{r}" + (f"-s{stride}" if stride > 1 else "")
            yield name, ConvShape(n, c, hw, hw, k, r, r, stride, padding)


SUITES = {"usual": shapes, "large": large.shapes}
Runner = Callable[[Plan], Callable[[], Any]]  # a call by a plan


def plan_name(plan: Plan) -> str:
    return f"{plan.spec.name} {'x'.join(map(str, plan.passes[0].grid))}"


class Suite:
    """Measures on one GPU."""

    def __init__(self, ordinal: int, seconds: float) -> None:
        self.device = gpu_device(ordinal)
        self.torch = torch = needed("torch", "torch")
        self.seconds = seconds
        torch.cuda.set_device(ordinal)
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        torch.backends.cudnn.benchmark = True
        torch.empty(1, device="cuda")
        self.clock = ClockSampler(ordinal)
        self.cudnn = Cudnn()
        import pycuda.driver as cuda
        with self.device.active():
            self.queue = cuda.Stream()
        self.stream = torch.cuda.ExternalStream(self.queue.handle)
        self.cudnn.use_stream(self.queue.handle)

    def seconds_of(self, call: Callable[[], Any]) -> float:
        """Median seconds of a call."""
        return self.replayed(*self.captured(call))

    def captured(self, call: Callable[[], Any]) -> tuple[Any, int]:
        """A graph of CALLS of it, or of fewer long ones, and how many. It keeps a workspace for as long as the device
        lives: what is timed again is replayed, not captured again."""
        torch = self.torch
        with torch.cuda.stream(self.stream):
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            for _ in range(2):
                start.record()
                call()
                end.record()
                end.synchronize()
            calls = max(1, min(CALLS, int(self.seconds * 1e3 / start.elapsed_time(end))))
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=self.stream):
                for _ in range(calls):
                    call()
        return graph, calls

    def replayed(self, graph: Any, calls: int) -> float:
        """Median seconds of each of the calls of a graph."""
        torch = self.torch
        with torch.cuda.stream(self.stream):
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            times: list[float] = []
            while len(times) < 5 or (sum(times) * calls < self.seconds and len(times) < 200):
                start.record()
                graph.replay()
                end.record()
                end.synchronize()
                times.append(start.elapsed_time(end) * 1e-3 / calls)
        return statistics.median(times[1:])

    def copy_rate(self, nbytes: int = 1 << 30) -> float:
        """Bytes a second of a plain copy, read and written."""
        source, target = self.torch.zeros((2, nbytes // 4), device="cuda")
        return 2 * nbytes / self.seconds_of(lambda: target.copy_(source))

    def uniform(self, *sizes: tuple[int, ...]) -> list[Any]:
        """Arrays of numbers in [-1, 1], the same ones every time."""
        generator = self.torch.Generator("cuda").manual_seed(1)
        return [self.torch.rand(size, device="cuda", generator=generator) * 2 - 1 for size in sizes]

    def planned(self, plan: Plan, run: Runner) -> dict[str, Any]:
        """What a row says of the plan that was taken."""
        return {"seconds": self.seconds_of(run(plan)), "plan": plan_name(plan), "algorithm": plan.algorithm,
                "arithmetic": plan.arithmetic, "notes": list(plan.notes)}

    def beside_pytorch(self, call: Callable[[], Any], error: Callable[[Any], float]) -> dict[str, Any]:
        """What a row says of PyTorch's choice among cuDNN's algorithms, in FP32 and in TF32."""
        torch, row = self.torch, {}
        for name, tf32 in (("pytorch", False), ("cudnn_tf32", True)):
            torch.backends.cudnn.allow_tf32 = tf32
            with torch.cuda.stream(self.stream):
                row[f"{name}_seconds"] = self.seconds_of(call)
                found = call()
            torch.cuda.synchronize()
            torch.backends.cudnn.allow_tf32 = False
            row[f"{name}_error"] = error(found)
        return row

    def candidates(self, problem: Problem, run: Runner) -> dict[str, float]:
        """Seconds of every candidate within its limits."""
        found = {}
        for family in registry.FAMILIES:
            if problem.kind in family.kinds and family.unsupported_reason(problem) is None:
                for candidate in family.candidates(problem, self.device.chip):
                    try:
                        made = choose(problem, self.device.chip, candidate)
                    except maxdnn.ShapeError:
                        continue
                    found[candidate] = self.seconds_of(run(made))
        return found

    def beside_cudnn(self, prepare: Callable[[int], tuple[Callable[..., Any], int]], names: Mapping[int, str],
                     direct_ones: Sequence[int], *arrays: Any) -> dict[str, Any]:
        """What a row says of cuDNN: its algorithms by number, each prepared to a call and bytes of workspace."""
        times = {}
        for number in names:
            try:
                call, size = prepare(number)
                space = self.torch.empty(max(size, 16), dtype=self.torch.uint8, device="cuda")
                places = [array.data_ptr() for array in (*arrays, space)]
                times[number] = self.seconds_of(partial(call, *places))
            except (CudnnError, self.torch.OutOfMemoryError):
                continue
        fastest = min(times, key=times.__getitem__)
        return {"cudnn_direct_seconds": min(times[a] for a in direct_ones if a in times),
                "cudnn_fastest_seconds": times[fastest], "cudnn_fastest_algorithm": names[fastest]}

    def row(self, name: str, s: ConvShape, every: bool, layout: str, launches: bool, direction: str) -> dict[str, Any]:
        about = {"network": name.rsplit("-", 1)[0] if name.startswith(("alex", "over")) else name.split("-")[0],
                 "layer": name, "n": s.N, "pass": direction, "layout": layout, "kind": "measured",
                 "gpu": self.device.name}
        if direction != "forward":
            return about | gradient_row(self, direction, s, every, layout)
        return about | self._forward(s, every, layout, launches)

    def _forward(self, s: ConvShape, every: bool, layout: str, launches: bool) -> dict[str, Any]:
        torch = self.torch
        x, w = self.uniform((s.N, s.C, s.H, s.W), (s.K, s.C // s.groups, s.R, s.S))
        y, theirs = torch.full((2, s.N, s.K, s.P, s.Q), float("nan"), device="cuda")
        torch.cuda.synchronize()
        problem = forward(s, layout=layout)
        plan = choose(problem, self.device.chip, tuned=False)
        ours, bank, out = x, w, y
        if layout == "CHWN":
            ours, bank, out = (a.permute(1, 2, 3, 0).contiguous() for a in (x, w, y))
            torch.cuda.synchronize()

        def run(plan: Any) -> Callable[[], Any]:
            return lambda: maxdnn.conv_fprop(ours, bank, plan=plan, out=out, stream=self.queue)
        row = self.planned(plan, run)
        row["error"] = row["direct_error"] = self._error(x, w, out if layout == "NCHW" else out.permute(3, 0, 1, 2), s)
        row["correct"] = bool(row["error"] < 2e-6)
        row |= {"direct_seconds": row["seconds"], "direct_plan": row["plan"]}
        if plan.algorithm != "direct":  # the direct kernels beside it
            direct_plan = choose(problem, self.device.chip, algorithm="direct", tuned=False)
            row["direct_seconds"] = self.seconds_of(run(direct_plan))
            row["direct_plan"] = plan_name(direct_plan)
            row["direct_error"] = self._error(x, w, out if layout == "NCHW" else out.permute(3, 0, 1, 2), s)
        if every:
            row["candidates"] = self.candidates(problem, run)
        if launches:  # each alone, on what the whole call left
            row["launches"] = [{"kernel": x.spec.name, "bytes": x.work.nbytes,
                                "seconds": self.seconds_of(run(dataclasses.replace(plan, launches=(x,))))}
                               for x in plan.launches]
        options = dict(stride=s.stride, padding=s.padding, groups=s.groups)
        row |= self.beside_pytorch(lambda: torch.nn.functional.conv2d(x, w, **options),
                                   lambda found: self._error(x, w, found, s))
        return row | self.beside_cudnn(partial(self.cudnn.prepare, s), ALGORITHMS, DIRECT_FAMILY, x, w, theirs)

    def _error(self, x: Any, w: Any, y: Any, s: ConvShape) -> float:
        """Largest error of the sum of |terms|, against float64 on the GPU, a few images at a time."""
        torch = self.torch
        worst = 0.0
        some = max(1, int(4e8 / (s.C * s.R * s.S * s.P * s.Q)))  # the explicit patches in float64 take this much
        for first in range(0, min(s.N, 4 * some), some):
            part = slice(first, first + some)
            options = dict(stride=s.stride, padding=s.padding, groups=s.groups)
            with torch.backends.cudnn.flags(benchmark=False):
                want = torch.nn.functional.conv2d(x[part].double(), w.double(), **options)
                size = torch.nn.functional.conv2d(x[part].abs().double(), w.abs().double(), **options)
            error = ((y[part].double() - want).abs() / size).max().item()
            worst = error if not error <= worst else worst  # a NaN stays
        return worst


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ordinal", type=int, default=0, help="which GPU")
    parser.add_argument("--suite", default="usual", choices=list(SUITES), help="of layers (default: %(default)s)")
    parser.add_argument("--n", type=int, nargs="+", default=[1, 8, 32, 128], help="minibatches")
    parser.add_argument("--match", nargs="+", default=[""], help="only layers whose name holds one of these")
    parser.add_argument("--every", action="store_true", help="time every candidate plan, too")
    parser.add_argument("--pass", dest="passes", nargs="+", default=["forward"], choices=["forward", "data", "filters"],
                        help="the layers themselves, or gradients of their images or filters")
    parser.add_argument("--layout", nargs="+", default=["NCHW"], help="of our arrays: NCHW, CHWN or both")
    parser.add_argument("--launches", action="store_true", help="time every launch of our plan alone, too")
    parser.add_argument("--seconds", type=float, default=0.03, help="how long to repeat each measurement")
    parser.add_argument("--json", type=Path, required=True, metavar="FILE", help="write the results there")
    args = parser.parse_args(argv)
    suite = Suite(args.ordinal, args.seconds)
    kept = json.loads(args.json.read_text())["rows"] if args.json.exists() else []
    results = {"gpu": suite.device.name, "driver": suite.clock.driver_version, "cudnn": suite.cudnn.version,
               "sm_mhz": suite.clock.read(), "copy_bytes_per_second": suite.copy_rate(),
               "rows": kept}
    wrong = 0
    for direction, n, layout in itertools.product(args.passes, args.n, args.layout):
        for name, shape in SUITES[args.suite](n):
            if not any(part in name for part in args.match):
                continue
            row = suite.row(name, shape, args.every, layout, args.launches, direction)
            results["rows"] = [r for r in results["rows"] if any(r[key] != row[key] for key in KEYS)] + [row]
            wrong += not row["correct"]
            ratios = " ".join(f"{who.replace('_', ' ')} {row[f'{who}_seconds'] / row['seconds']:5.2f}"
                              for who in ("cudnn_direct", "cudnn_fastest", "pytorch", "cudnn_tf32"))
            print(f"{direction:8}{name:32} {layout} N={n:<4}{1e6 * row['seconds']:10.1f} us  {ratios} "
                  f"{row['cudnn_fastest_algorithm']:22}{row['error']:9.1e}  {row['plan']}", flush=True)
            args.json.write_text(json.dumps(results, indent=1) + "\n")
            suite.torch.cuda.empty_cache()
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
