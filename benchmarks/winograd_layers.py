"""Simulated whole calls of what the planner takes, every launch counted: the ten layers of the paper's table at 128
images on gm204, square products there, and all convolutions of VGG-E on gm200 at the 1126 MHz of Lavin and Gray's
measurements (Fast Algorithms for Convolutional Neural Networks, 2015, table 5: a Titan X). Their figures are measured,
these simulated. About ten minutes of a core and 4 GiB of memory for each job."""

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from maxdnn import ConvShape
from maxdnn.layers import LAYERS
from maxdnn.planning.cost import preset as chip
from maxdnn.planning.plan import Plan
from maxdnn.planning.select import choose
from maxdnn.problem.problem import forward, product
from maxdnn.runtime.files import write_whole
from maxdnn.simulator import timing
from maxdnn.simulator.machine import preset

# C, H = W, K and how often, filters 3x3 with padding 1 (Simonyan and Zisserman 2014, table 1, E)
VGG_E = ((3, 224, 64, 1), (64, 224, 64, 1), (64, 112, 128, 1), (128, 112, 128, 1), (128, 56, 256, 1), (256, 56, 256, 3),
         (256, 28, 512, 1), (512, 28, 512, 3), (512, 14, 512, 4))
PUBLISHED = {64: 266, 16: 65.79, 4: 17.72, 1: 5.55}  # milliseconds
PREPARED = 1  # images up to which the filters' transform is not counted
SQUARES = (1024, 2048, 4096)
TITAN_X_MHZ = 1126
Found = tuple[float, str]  # a figure and the line that shows it


def simulated_layer(number: int) -> Found:
    """CE of a layer of the table."""
    layer = LAYERS[number]
    timed = timing.call(choose(forward(layer.shape), chip("gm204"), tuned=False))
    return timed.ce, f"{layer.network + ' ' + layer.name:16}{timed.ce:7.1f}  {_launches(timed)}"


def simulated_product(size: int) -> Found:
    """CE of a square product."""
    timed = timing.call(choose(product((size, size), (size, size)), chip("gm204"), tuned=False))
    return timed.ce, f"{size:<16}{timed.ce:7.1f}  {_launches(timed)}"


def simulated_vgg_e(n: int, number: int) -> Found:
    """Milliseconds of a layer of VGG-E, as often as it is there."""
    (c, hw, k, times), prepared = VGG_E[number], n <= PREPARED
    made: Plan = choose(forward(ConvShape(n, c, hw, hw, k, 3, 3, 1, 1)), chip("gm200"), prepared=prepared, tuned=False)
    timed = timing.call(made.apart[1] if prepared else made, machine=preset("gm200").replace(clock_mhz=TITAN_X_MHZ))
    return 1e3 * timed.seconds * times, (f"{f'{c} -> {k}, {hw} x {hw}':22}{times} x {1e3 * timed.seconds:8.3f} ms  "
                                         f"{_launches(timed)}")


def _launches(timed: timing.ConvTiming) -> str:
    return ", ".join(f"{x.kernel} {x.clocks}" for x in timed.launches)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "winograd_layers.txt")
    parser.add_argument("--jobs", type=int, default=1, help="processes that simulate at once (default: %(default)s)")
    args = parser.parse_args(argv)
    lines: list[str] = []

    def collect(found: list[Future[Found]]) -> list[float]:
        for one in found:
            lines.append(one.result()[1])
            print(lines[-1], flush=True)
        return [one.result()[0] for one in found]

    with ProcessPoolExecutor(args.jobs, get_context("spawn")) as pool:
        vgg = {n: [pool.submit(simulated_vgg_e, n, number) for number in range(len(VGG_E))] for n in PUBLISHED}
        layers = [pool.submit(simulated_layer, number) for number in range(len(LAYERS))]
        squares = [pool.submit(simulated_product, size) for size in SQUARES]
        lines += ["Ten layers, N = 128, C,H,W,N, whole calls simulated on gm204: CE in percent, clocks of each launch",
                  ""]
        ces = collect(layers)
        lines += [f"{'mean':16}{sum(ces) / len(ces):7.1f}", "", "Products of square matrices, simulated on gm204", ""]
        collect(squares)
        lines.append("")
        for n in reversed(PUBLISHED):
            total, what = sum(collect(vgg[n])), ", filters prepared" if n <= PREPARED else ""
            lines += [f"VGG-E, N = {n}{what}: {total:.2f} ms simulated, {PUBLISHED[n]} ms published", ""]
            print(lines[-2], flush=True)
    write_whole(args.out, lambda file: file.write(("\n".join(lines) + "\n").encode()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
