"""What the kernels' catalogue promises, in NumPy: runs the launches of a plan by the text of maxdnn/kernels.py alone.
It shows that a plan is right, whatever the kernels are; tests of the kernels show that they keep the promise."""

import numpy as np

from maxdnn.kernels import PAD, TRANSPOSE

POISON = np.float32(np.nan)


def run_plan(plan, images, filters, alpha=1.0):
    """The output of a plan for arrays of its layout."""
    memory = {name: np.full(region.nbytes // 4, POISON) for name, region in plan.workspace.items()}
    memory |= {"images": images.ravel(), "filters": filters.ravel()}
    memory["out"] = np.full(int(np.prod(plan.array_shapes()["out"])), POISON)
    for launch in plan.launches:
        {PAD.name: _pad, TRANSPOSE.name: _transpose}.get(launch.spec.name, _conv)(launch, memory, alpha)
    return memory["out"].reshape(plan.array_shapes()["out"])


def _texels(memory, coordinates):
    """Rows of four floats; zeros outside of the texture."""
    texture = memory.reshape(-1, 4)
    inside = (coordinates >= 0) & (coordinates < len(texture))
    return np.where(inside[..., None], texture[np.where(inside, coordinates, 0)], np.float32(0))


def _conv(launch, memory, alpha):
    v, (q, p, z), (images, filters) = launch.values, launch.grid, launch.spec.tile
    elements = np.arange(8 * v["tiles"])
    table = np.frombuffer(launch.offsets, np.int32)[:8 * v["tiles"]].astype(np.int64)
    out = memory[v["out"]].reshape(-1)
    rows = np.arange(p)[:, None, None, None] * v["map_row"] + np.arange(q)[:, None, None] * v["map_col"]
    for block_z in range(z):
        tile_k, tile_n = block_z * v["tile_magic"] >> 31, block_z - (block_z * v["tile_magic"] >> 31) * v["image_tiles"]
        n, k = np.arange(images) + images * tile_n, np.arange(filters) + filters * tile_k
        n4, k4 = n[::4] // 4, k[::4] // 4
        maps = _texels(memory[launch.textures["texI"]], rows + table[:, None] + n4).reshape(p, q, -1, images)
        bank = _texels(memory[launch.textures["texF"]],
                       v["filter_offset"] + elements[:, None] * v["filter_texels"] + k4).reshape(-1, filters)
        maps, bank = maps[..., n < v["n"]].astype(float), bank[:, k < v["k"]].astype(float)
        n, k = n[n < v["n"]], k[k < v["k"]]
        sums = alpha * np.einsum("pqen,ek->kpqn", maps, bank)
        where = (k[:, None, None, None] * v["out_plane"] + np.arange(p)[:, None, None] * v["out_row"]
                 + np.arange(q)[:, None] * v["n"] + n)
        out[where] = sums + (out[where] if v["accumulate"] else 0)


def _pad(launch, memory, _):
    v = launch.values
    assert launch.grid == (-(-v["wp"] // 4), v["hp"], min(v["c"], 65535))
    padded = np.zeros((v["c"], v["hp"], v["wp"], v["ns"]), np.float32)
    source = memory[v["src"]].reshape(v["c"], v["h"], v["w"], v["n"])
    padded[:, v["pad_h"]:v["pad_h"] + v["h"], v["pad_w"]:v["pad_w"] + v["w"], :v["n"]] = source
    memory[v["dst"]][:] = padded.ravel()


def _transpose(launch, memory, _):
    v = launch.values
    assert launch.grid[0] * 32 >= v["rows"]
    memory[v["dst"]][:] = memory[v["src"]].reshape(v["rows"], v["cols"]).T.ravel()
