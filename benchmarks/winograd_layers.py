"""Simulated whole calls of what the planner takes, every launch counted: the ten layers of the paper's table at 128
images on gm204, and all convolutions of VGG-E on gm200 at the 1126 MHz of Lavin and Gray's measurements (Fast
Algorithms for Convolutional Neural Networks, 2015, table 5: a Titan X). Their figures are measured, these simulated.
About ten minutes of a core and 4 GiB of memory."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from maxdnn import ConvShape, timing
from maxdnn.chips import preset as chip
from maxdnn.choose import choose
from maxdnn.files import write_whole
from maxdnn.layers import LAYERS
from maxdnn.plans import Plan
from maxdnn.problem import forward
from maxdnn.sim.machine import preset

# C, H = W, K and how often, filters 3x3 with padding 1 (Simonyan and Zisserman 2014, table 1, E)
VGG_E = ((3, 224, 64, 1), (64, 224, 64, 1), (64, 112, 128, 1), (128, 112, 128, 1), (128, 56, 256, 1), (256, 56, 256, 3),
         (256, 28, 512, 1), (512, 28, 512, 3), (512, 14, 512, 4))
PUBLISHED = {64: 266, 16: 65.79, 4: 17.72, 1: 5.55}  # milliseconds
TITAN_X_MHZ = 1126


def ten_layers(lines: list[str]) -> None:
    lines += ["Ten layers, N = 128, C,H,W,N, whole calls simulated on gm204: CE in percent, clocks of each launch", ""]
    ces = []
    for layer in LAYERS:
        made = choose(forward(layer.shape), chip("gm204"))
        timed = timing.call(made)
        ces.append(timed.ce)
        each = ", ".join(f"{x.kernel} {x.clocks}" for x in timed.launches)
        lines.append(f"{layer.network + ' ' + layer.name:16}{timed.ce:7.1f}  {each}")
        print(lines[-1], flush=True)
    lines += [f"{'mean':16}{sum(ces) / len(ces):7.1f}", ""]


def vgg_e(lines: list[str], n: int, prepared: bool) -> None:
    machine, total = preset("gm200").replace(clock_mhz=TITAN_X_MHZ), 0.0
    what = ", filters prepared" if prepared else ""
    for c, hw, k, times in VGG_E:
        made: Plan = choose(forward(ConvShape(n, c, hw, hw, k, 3, 3, 1, 1)), chip("gm200"), prepared=prepared)
        timed = timing.call(made.apart[1] if prepared else made, machine=machine)
        total += 1e3 * timed.seconds * times
        each = ", ".join(f"{x.kernel} {x.clocks}" for x in timed.launches)
        lines.append(f"{f'{c} -> {k}, {hw} x {hw}':22}{times} x {1e3 * timed.seconds:8.3f} ms  {each}")
        print(lines[-1], flush=True)
    lines += [f"VGG-E, N = {n}{what}: {total:.2f} ms simulated, {PUBLISHED[n]} ms published", ""]
    print(lines[-2], flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "winograd_layers.txt")
    args = parser.parse_args(argv)
    lines: list[str] = []
    ten_layers(lines)
    for n, prepared in ((1, True), (4, False), (16, False), (64, False)):
        vgg_e(lines, n, prepared)
    write_whole(args.out, lambda file: file.write(("\n".join(lines) + "\n").encode()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
