"""The paper's ten layers on a real GPU: maxdnn beside cuDNN and cuBLAS in one run, same shapes, same data, medians of
event times of calls one behind the other, the SM clock by its own counters, every output compared with float64; and
matrix products beside cuBLAS. Used by alexnet_overfeat.py --gpu. The rows of the H200:

    python benchmarks/gpu_table.py --json benchmarks/results/alexnet_overfeat.h200.json

Needs pycuda, nvidia-ml-py, PyTorch (for the cuBLAS rate) and cuDNN 9."""

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from gpu_baselines import (
    ALGORITHMS,
    CALLS,
    DIRECT_FAMILY,
    EVERY_ALGORITHM,
    FMA_MATH,
    TF32_MATH,
    ClockSampler,
    Cudnn,
    CudnnError,
    Timing,
    gpu_device,
    layer_data,
    measure,
    sgemm,
)

import maxdnn
from maxdnn.algorithms.implicit_gemm.tensor_cores import FAMILY as TENSOR_CORES
from maxdnn.layers import LAYERS, Layer
from maxdnn.planning.plan import Plan
from maxdnn.planning.select import plans
from maxdnn.problem.problem import forward
from maxdnn.reference import reference_rows, relative_error

TOLERANCE = 2e-6
SIZES = (512, 1024, 1536, 2048, 4096, 8192)  # of square products


def efficiency(layer: Layer, timing: Timing, device: Any) -> float:
    """The paper's measure in percent, with the clocks of all SMs at the clock that was read."""
    return 100 * layer.shape.efficiency_from_clocks(timing.seconds * timing.sm_mhz * 1e6 * device.sms)


class GpuTable:
    """Measures layers on one GPU."""

    def __init__(self, ordinal: int = 0) -> None:
        self.device = gpu_device(ordinal)
        self.clock = ClockSampler(ordinal)
        with self.device.active():
            self.cudnn = Cudnn()

    def header(self) -> dict[str, Any]:
        """`native`: whether the layers run in the GPU's own machine code, not translated. Products: CE by size."""
        def ce(n: int, timing: Timing) -> float:
            return 100 * n**3 / (timing.seconds * timing.sm_mhz * 1e6 * 128 * self.device.sms)
        theirs = {n: sgemm(self.device, n) for n in SIZES}
        ours = {n: sgemm(self.device, n, maxdnn.matmul) for n in SIZES}
        largest = theirs[SIZES[-1]]
        return {"gpu": self.device.name, "driver": self.clock.driver_version, "sms": self.device.sms,
                "cudnn": self.cudnn.version, "calls": CALLS, "sgemm_tflops": 2e-12 * SIZES[-1]**3 / largest.seconds,
                "sgemm_ce": ce(SIZES[-1], largest), "sgemm_sm_mhz": largest.sm_mhz,
                "native": self.device.native or all(self._plan(x.shape).archs for x in LAYERS),
                "matmul_ce": {str(n): ce(n, timing) for n, timing in ours.items()},
                "cublas_ce": {str(n): ce(n, timing) for n, timing in theirs.items()}}

    def _plan(self, shape: maxdnn.ConvShape, algorithm: str = "direct") -> maxdnn.Plan:
        return maxdnn.plan(shape, device=self.device, tuned=False, algorithm=algorithm)

    def rows(self, layers: Sequence[Layer]) -> Iterator[dict[str, Any]]:
        for layer in layers:
            yield self._row(layer)

    def _row(self, layer: Layer) -> dict[str, Any]:
        from pycuda import gpuarray
        s = layer.shape
        maps, filters = layer_data(s)
        padded = np.pad(maps, ((0, 0), (s.pad_h, s.pad_h), (s.pad_w, s.pad_w), (0, 0)))
        with self.device.active():
            x, f, p = (gpuarray.to_gpu(a) for a in (maps, filters, padded))
            out = gpuarray.empty((s.K, s.P, s.Q, s.N), np.float32)
        plan, every = self._plan(s), self._plan(s, "auto")
        kernel_plan = self._plan(maxdnn.ConvShape(s.N, s.C, *padded.shape[1:3], s.K, s.R, s.S, s.stride))
        best = measure(self.device, lambda: maxdnn.conv_fprop(x, f, out=out, plan=every))
        with self.device.active():
            results = [out.get()]
        alone = measure(self.device, lambda: maxdnn.conv_fprop(x, f, out=out, plan=plan), calls=1)
        call = measure(self.device, lambda: maxdnn.conv_fprop(x, f, out=out, plan=plan))
        with self.device.active():
            results.append(out.get())
        kernel = measure(self.device, lambda: maxdnn.conv_fprop(p, f, out=out, plan=kernel_plan))
        tensor_cores = self._tensor_cores(s)
        tc_ce = None if tensor_cores is None else efficiency(layer, measure(
            self.device, lambda: maxdnn.conv_fprop(x, f, out=out, plan=tensor_cores)), self.device)
        # no further digit means anything
        best_error, error = (float(f"{x:.1e}") for x in _errors(maps, filters, results, s))
        row = {"network": layer.network, "layer": layer.name, "gpu": self.device.name, "kind": "measured",
               "kernel": plan.spec.name, "ce": efficiency(layer, call, self.device), "paper_ce": layer.paper_ce,
               "one_call_ce": efficiency(layer, alone, self.device),
               "best_ce": efficiency(layer, min(best, call, key=lambda t: t.seconds), self.device),
               "best_kernel": every.spec.name, "best_algorithm": every.algorithm, "best_error": best_error,
               "best_arithmetic": every.arithmetic,
               "tc_ce": tc_ce, "kernel_ce": efficiency(layer, kernel, self.device),
               "clocks": call.seconds * call.sm_mhz * 1e6 * self.device.sms, "sm_mhz": call.sm_mhz,
               "seconds": call.seconds, "kernel_seconds": kernel.seconds, "error": error,
               "correct": bool(max(error, best_error) < TOLERANCE), "driver": self.clock.driver_version}
        row.update(self._cudnn(layer, maps, filters, results[1]))
        return row

    def _tensor_cores(self, shape: maxdnn.ConvShape) -> Plan | None:
        """Implicit GEMM on tensor cores, split as the estimate says; None where it does not serve."""
        if TENSOR_CORES.unsupported_reason(forward(shape)) is not None:
            return None
        made = plans(forward(shape), self.device.chip, families=(TENSOR_CORES,))
        return min(made.values(), key=lambda plan: plan.clocks(self.device.chip))

    def _cudnn(self, layer: Layer, maps: np.ndarray, filters: np.ndarray, ours: np.ndarray) -> dict[str, Any]:
        """Every algorithm that serves the layer, timed; the best of the direct family and the best of all."""
        from pycuda import gpuarray
        s = layer.shape
        with self.device.active():
            x = gpuarray.to_gpu(np.ascontiguousarray(maps.transpose(3, 0, 1, 2)))
            w = gpuarray.to_gpu(np.ascontiguousarray(filters.transpose(3, 0, 1, 2)))
            y = gpuarray.zeros((s.N, s.K, s.P, s.Q), np.float32)
        tf32 = self._tf32(layer, maps, filters, (x, w, y))
        times: dict[str, float] = {}
        best: dict[str, tuple[float, Timing, str]] = {}
        for number in EVERY_ALGORITHM:
            timing = self._algorithm(s, number, (x, w, y))
            if timing is None:
                continue
            times[ALGORITHMS[number]] = timing.seconds
            for family, members in (("direct", DIRECT_FAMILY), ("best", EVERY_ALGORITHM)):
                if number in members and (family not in best or timing.seconds < best[family][0]):
                    best[family] = (timing.seconds, timing, ALGORITHMS[number])
        with self.device.active():
            theirs = y.get().transpose(1, 2, 3, 0)
        row: dict[str, Any] = {**tf32, "cudnn_seconds": times,
                               "largest_difference": float(f"{np.abs(theirs - ours).max():.1e}")}
        for family, (_, timing, name) in best.items():
            row[f"cudnn_{family}_ce"] = efficiency(layer, timing, self.device)
            row[f"cudnn_{family}_algorithm"] = name
        return row

    def _tf32(self, layer: Layer, maps: np.ndarray, filters: np.ndarray, arrays: Sequence[Any]) -> dict[str, Any]:
        """The fastest of cuDNN's algorithms where they may use TF32, and its error."""
        timings = {number: timing for number in EVERY_ALGORITHM
                   if (timing := self._algorithm(layer.shape, number, arrays, TF32_MATH)) is not None}
        fastest = min(timings, key=lambda number: timings[number].seconds)
        self._algorithm(layer.shape, fastest, arrays, TF32_MATH)
        with self.device.active():
            found = arrays[2].get().transpose(1, 2, 3, 0)
        error, = _errors(maps, filters, [found], layer.shape)
        return {"tf32_ce": efficiency(layer, timings[fastest], self.device),
                "cudnn_tf32_algorithm": ALGORITHMS[fastest], "cudnn_tf32_error": float(f"{error:.1e}")}

    def _algorithm(self, shape: maxdnn.ConvShape, number: int, arrays: Sequence[Any],
                   math: int = FMA_MATH) -> Timing | None:
        import pycuda.driver as cuda
        from pycuda import gpuarray
        try:
            with self.device.active():
                run, size = self.cudnn.prepare(shape, number, math)
                space = gpuarray.empty(max(size, 16), np.uint8)
                places = [array.ptr for array in (*arrays, space)]
                run(*places)
            return measure(self.device, lambda: run(*places))
        except (CudnnError, cuda.MemoryError):
            return None


def _errors(maps: np.ndarray, filters: np.ndarray, results: Sequence[np.ndarray],
            shape: maxdnn.ConvShape) -> list[float]:
    """The largest of each result."""
    rows = enumerate(reference_rows(maps, filters, shape))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        errors = pool.map(lambda row: [relative_error(x[:, row[0]], *row[1]) for x in results], rows)
        return np.max(list(errors), axis=0).tolist()


def main(argv: Sequence[str] | None = None) -> int:
    names = [f"{x.network}-{x.name}" for x in LAYERS]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ordinal", type=int, default=0, help="which GPU")
    parser.add_argument("--layers", nargs="+", choices=names, default=names, metavar="LAYER", help=", ".join(names))
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there")
    args = parser.parse_args(argv)
    table = GpuTable(args.ordinal)
    results = {**table.header(), "layers": []}
    print(f"{results['gpu']}, driver {results['driver']}, cuBLAS SGEMM {results['sgemm_tflops']:.1f} TFLOP/s "
          f"({results['sgemm_ce']:.1f} %) at {results['sgemm_sm_mhz']:.0f} MHz; all figures measured, CE in percent")
    for name in ("matmul_ce", "cublas_ce"):
        print(f"{name:16}" + "".join(f"{n:>8}: {ce:.1f}" for n, ce in results[name].items()))
    print(f"{'layer':16}{'CE':>7}{'best':>8}{'tensor cores':>14}{'cuDNN direct':>14}{'cuDNN best':>12}{'TF32':>8}  "
          f"{'best algorithm':22}{'MHz':>6}{'ms':>9}{'best error':>11}{'of TF32':>9}")
    for row in table.rows([x for x in LAYERS if f"{x.network}-{x.name}" in args.layers]):
        results["layers"].append(row)
        tc_ce = "-" if row["tc_ce"] is None else f"{row['tc_ce']:.1f}"
        print(f"{row['network'] + '-' + row['layer']:16}{row['ce']:7.1f}{row['best_ce']:8.1f}{tc_ce:>14}"
              f"{row['cudnn_direct_ce']:14.1f}{row['cudnn_best_ce']:12.1f}{row['tf32_ce']:8.1f}  "
              f"{row['cudnn_best_algorithm']:22}{row['sm_mhz']:6.0f}{1e3 * row['seconds']:9.3f}"
              f"{row['best_error']:11.1e}{row['cudnn_tf32_error']:9.1e}", flush=True)
        if args.json:
            args.json.write_text(json.dumps(results, indent=1) + "\n")
    return 0 if all(row["correct"] for row in results["layers"]) else 1


if __name__ == "__main__":
    sys.exit(main())
