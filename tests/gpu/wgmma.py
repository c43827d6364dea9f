"""What the H200's tensor cores compute, against models: python tests/gpu/wgmma.py --out DIR.

Compiles tests/gpu/wgmma_probe.cu with nvcc, runs random and nasty operand sets of each type, and says for each
candidate of tests/gpu/wgmma_models.py in how many sets its bits differ.  Writes report.txt, differing.json (the first
sets that the best model gets wrong), wgmma.npz (raw results, for tests without the card) and layouts.npz (where
descriptors read).
"""

import argparse
import ctypes
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from tests.gpu.wgmma_models import FORMATS, Model, candidates, neighbours, wgmma
from tests.gpu.wgmma_sets import nasty_tiles, random_tiles, tiles_of

TYPES = {"f16": 0, "bf16": 1, "tf32": 2}
HERE = Path(__file__).resolve().parent


def compiled(folder):
    """The probe as a library."""
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    path = Path(folder) / "wgmma.so"
    subprocess.run([nvcc, "-gencode", "arch=compute_90a,code=sm_90a", "-O2", "-shared", "-Xcompiler", "-fPIC", "-o",
                    path, HERE / "wgmma_probe.cu"], check=True)
    return ctypes.CDLL(str(path))


def pointer(x):
    return x.ctypes.data_as(ctypes.c_void_p)


def on_card(library, kind, a, b, c, registers):
    """Bits of A x B + C by one instruction a tile."""
    item = np.uint32 if kind == "tf32" else np.uint16
    a, b = (np.ascontiguousarray(x.astype(item)) for x in (a, b))
    c = np.ascontiguousarray(c.astype(np.uint32))
    out = np.zeros(c.shape, np.uint32)
    if library.run_products(TYPES[kind], registers, len(a), pointer(a), pointer(b), pointer(c), pointer(out)):
        raise SystemExit("the probe failed")
    return out


def sample(a, b, c, got, count, rng):
    """Some elements of tiles as sets of their own."""
    pick = rng.permutation(c.size)[:count]
    t, i, j = np.unravel_index(pick, c.shape)
    return a[t, i], b[t, j], c[t, i, j], got[t, i, j]


WORK = {}


def wrong_of(model):
    a, b, c, got = WORK["sample"]
    return int((wgmma(a, b, c, WORK["kind"], model) != got).sum())


def bits_of(i):
    a, b, c = (x[i:i + 8] for x in WORK["tiles"])
    return tiles_of(a, b, c, WORK["kind"], WORK["model"])


def search(kind, say):
    """The model with fewest differing sets in the sample; every one tried is reported."""
    tried = {}

    def judge(models):
        models = [m for m in models if m not in tried]
        with get_context("fork").Pool(min(16, os.cpu_count())) as pool:
            tried.update(zip(models, pool.map(wrong_of, models, chunksize=1), strict=True))

    judge(candidates())
    best = min(tried, key=tried.get)
    while True:
        judge(neighbours(best, kind))
        better = min(tried, key=tried.get)
        if better == best or tried[better] == tried[best]:
            break
        best = better
    count = len(WORK["sample"][3])
    say(f"{kind}: {len(tried)} candidates, {count} sets each; differing sets, fewest first:")
    plain = asdict(Model())
    for model, wrong in sorted(tried.items(), key=lambda x: x[1])[:60]:
        changed = {k: v for k, v in asdict(model).items() if v != plain[k]}
        say(f"  {wrong:6d}  {changed or 'as published'}")
    say(f"  as published: {tried[Model()]}")
    return best


def kind_of_difference(want, got):
    def name(x):
        size = x & 0x7FFFFFFF
        if size > 0x7F800000:
            return "nan"
        return "inf" if size == 0x7F800000 else "zero" if size == 0 else "subnormal" if size < 0x800000 else "normal"

    w, g = name(want), name(got)
    if w == g and w in ("normal", "subnormal") and want >> 31 == got >> 31:
        return f"{w}, {min(abs(int(want) - int(got)), 9)} ulp"
    return f"{w} wanted, {g} got"


def examine(kind, families, library, pretend, say):
    """Runs all sets of a type; the raw results and what differs from the best model."""
    names = [name for name, tiles in families.items() for _ in range(len(tiles[0]))]
    a, b, c = (np.concatenate([tiles[i] for tiles in families.values()]) for i in range(3))
    WORK.update(kind=kind, tiles=(a, b, c))
    if pretend:
        got = everywhere(pretend)
    else:
        got, other = (on_card(library, kind, a, b, c, registers) for registers in (0, 1))
        say(f"{kind}: A from registers differs from A from shared memory in {(got != other).sum()} of {c.size} sets")
    rng = np.random.default_rng(3)
    nasty = np.array([name != "random" for name in names])
    parts = [sample(a[m], b[m], c[m], got[m], 6000, rng) for m in (nasty, ~nasty)]
    WORK["sample"] = tuple(np.concatenate(x) for x in zip(*parts, strict=True))
    best = search(kind, say)
    want = everywhere(best)
    wrong = want != got
    say(f"{kind}: best model {asdict(best)}")
    say(f"{kind}: {wrong.sum()} of {c.size} sets differ from it")
    first = []
    for name in dict.fromkeys(names):
        here = np.array([n == name for n in names])
        t, i, j = np.nonzero(wrong & here[:, None, None])
        pairs = zip(want[t, i, j][:5000], got[t, i, j][:5000], strict=True)
        kinds = Counter(kind_of_difference(w, g) for w, g in pairs)
        say(f"  {name}: {here.sum() * 512} sets, {len(t)} differ {dict(kinds.most_common(6)) or ''}")
        for q in range(min(len(t), 20)):
            place = t[q], i[q], j[q]
            first.append({"family": name, "a": [f"{x:x}" for x in a[place[:2]]], "b": [f"{x:x}" for x in b[t[q], j[q]]],
                          "c": f"{c[place]:08x}", "want": f"{want[place]:08x}", "got": f"{got[place]:08x}"})
    keep = [names.index(name) for name in dict.fromkeys(names)] + list(np.flatnonzero(~nasty)[1:8])
    item = np.uint32 if kind == "tf32" else np.uint16
    raw = {f"{kind}_a": a[keep].astype(item), f"{kind}_b": b[keep].astype(item),
           f"{kind}_c": c[keep].astype(np.uint32), f"{kind}_d": got[keep]}
    return raw, first[:200]


def everywhere(model):
    WORK["model"] = model
    with get_context("fork").Pool(min(16, os.cpu_count())) as pool:
        return np.concatenate(pool.map(bits_of, range(0, len(WORK["tiles"][0]), 8), chunksize=1))


def layouts():
    """Descriptors whose reading is recorded: type, operand is B, transposed, swizzle, leading, stride, base, start."""
    row = {0: 16, 3: 32, 2: 64, 1: 128}
    for kind in ("f16", "tf32"):
        for operand_b in (0, 1):
            for swizzle, width in row.items():
                atom = 8 * width
                steps = [(128, 256), (256, 128), (1024, 128), (128, 1024)] if swizzle == 0 else [
                    (16, atom), (atom, 2 * atom), (2 * atom, atom), (4096, atom), (0, atom)]
                for leading, stride in steps:
                    yield kind, operand_b, 0, swizzle, leading, stride, 0, 0
                for start in range(32, width, 32):
                    yield kind, operand_b, 0, swizzle, 16, atom, 0, start
                for base, start in ((0, atom // 2), (width // 16 // 2, atom // 2), (0, 128), (1, 128), (0, 1024),
                                    (0, 16)):
                    yield kind, operand_b, 0, swizzle, 16, atom, base, start
                if kind == "f16":
                    for leading, stride in ((128, 256), (256, 128), (1024, 2048), (2048, 1024), (4096, 1024),
                                            (1024, 4096), (512, 8192), (8192, 512)):
                        yield kind, operand_b, 1, swizzle, leading, stride, 0, 0
                    yield kind, operand_b, 1, swizzle, 2048, 1024, 0, 2048
                    yield kind, operand_b, 1, swizzle, 2048, 1024, 1, 128


def find(library, kind, operand_b, transposed, swizzle, leading, stride, base, start):
    """Which element of a 64 KiB image each element of an operand came from: [k, n] for B, [m, k] for A; -1: none."""
    size = 4 if kind == "tf32" else 2
    index = np.arange(65536 // size)
    rest = (leading >> 4) << 16 | (stride >> 4) << 32 | base << 49 | swizzle << 62
    depth = 32 // size
    parts = []
    for half in (index & 255, index >> 8):  # 0 .. 255 are exact in both types
        values = (half + 1).astype(np.float32 if size == 4 else np.float16)
        columns = []
        for first in (0,) if operand_b or depth == 8 else (0, 8):
            out = np.zeros((16, 64) if operand_b else (64, 8), np.float32)
            if library.run_find(TYPES[kind], operand_b, transposed, pointer(values), ctypes.c_uint64(rest), start,
                                first, pointer(out)):
                raise SystemExit(f"the probe failed for {kind}, {operand_b}, {transposed}, {rest:x}, {start}")
            columns.append(out[:depth] if operand_b else out)
        parts.append(np.concatenate(columns, axis=1).astype(np.int32) - 1)
    return np.where((parts[0] < 0) | (parts[1] < 0), -1, parts[0] + (parts[1] << 8))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True, help="folder for the report")
    parser.add_argument("--tiles", type=int, default=300, help="random tiles of 512 sets a type")
    parser.add_argument("--each", type=int, default=3, help="tiles of each nasty family")
    parser.add_argument("--pretend", help="changed options of a model (JSON) that stands in for the card")
    args = parser.parse_args()
    folder = Path(args.out)
    folder.mkdir(parents=True, exist_ok=True)
    report = (folder / "report.txt").open("w")

    def say(line):
        print(line, flush=True)
        print(line, file=report, flush=True)

    pretend = Model(**json.loads(args.pretend)) if args.pretend else None
    library = None
    if not pretend:
        with tempfile.TemporaryDirectory() as build:
            library = compiled(build)
        found, settings = [], list(layouts())
        for setting in settings:
            found.append(find(library, *setting))
        np.savez_compressed(folder / "layouts.npz", settings=json.dumps(settings),
                            **{str(i): x for i, x in enumerate(found)})
        say(f"{len(found)} descriptors read")
    raw, differing = {}, {}
    for seed, kind in enumerate(FORMATS):
        families = nasty_tiles(kind, args.each, 100 + seed)
        families["random"] = random_tiles(kind, args.tiles, seed)
        more, differing[kind] = examine(kind, families, library, pretend, say)
        raw.update(more)
        np.savez_compressed(folder / "wgmma.npz", **raw)
        (folder / "differing.json").write_text(json.dumps(differing, indent=0))
    report.close()


if __name__ == "__main__":
    main()
