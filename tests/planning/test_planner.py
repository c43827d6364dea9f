import dataclasses
import gc
import itertools
import json
import pathlib
import re
import weakref

import numpy as np
import pytest

import maxdnn
from maxdnn.algorithms import registry
from maxdnn.algorithms.memory_ops.maxwell import PAD, TRANSPOSE
from maxdnn.algorithms.paper import plan as paper
from maxdnn.algorithms.paper.maxwell import (
    CONV_64X64,
    CONV_128X32,
    CONV_PAPER,
    OUT_OF_RANGE,
    TABLE_ENTRIES,
)
from maxdnn.algorithms.paper.plan import offset_table, tile_use
from maxdnn.errors import LaunchError, ShapeError
from maxdnn.layers import LAYERS
from maxdnn.planning.cost import Chip, preset
from maxdnn.planning.plan import MAX_TEXELS, make
from maxdnn.planning.select import choose, plan, plans
from maxdnn.problem.problem import forward
from maxdnn.problem.shape import ConvShape
from maxdnn.reference import conv_reference, relative_error
from tests.contract import run_plan

AWKWARD = ConvShape(6, 5, 9, 11, 70, 3, 2, stride=(2, 1), padding=(1, 3))


def direct_plan(shape, **options):
    """The plan of the paper's way with its 64 x 64 kernel, whatever the planner would choose."""
    return plan(shape, kernel=CONV_64X64.name, **options)


def table(launch):
    return np.frombuffer(launch.tables["offsets"], np.int32)


def test_offsets_are_distances_in_texels_inside_the_padded_map():
    hp, wp, texels = 9 + 2, 11 + 6, 2
    want = [((c * hp + r) * wp + s) * texels for c, r, s in itertools.product(range(5), range(3), range(2))]
    assert offset_table(AWKWARD, 0, 30).tolist() == want + [OUT_OF_RANGE] * 2
    assert offset_table(AWKWARD, 8, 30).tolist() == want[8:] + [OUT_OF_RANGE] * 2


def test_the_last_pixel_of_the_last_output_stays_inside_the_map():
    (conv,) = direct_plan(AWKWARD).passes
    s, texels = AWKWARD, 2
    last = ((s.P - 1) * conv.values["map_row"] + (s.Q - 1) * conv.values["map_col"] + int(table(conv)[:30].max()))
    row = (s.P - 1) * 2 + s.R - 1
    column = s.Q - 1 + s.S - 1
    assert last == (((s.C - 1) * 11 + row) * 17 + column) * texels
    assert last + texels <= 5 * 11 * 17 * texels


def test_offsets_that_do_not_exist_read_zero_from_any_base():
    """On the largest map there is, whose last pixel is the farthest base: a missing offset leads from the first pixel
    beyond the map, and from the last not beyond an int32."""
    largest = ConvShape(4, 1, 2**14, 2**14, 1, 1, 1)
    (conv,) = direct_plan(largest).passes
    missing = int(table(conv)[-1])
    last = (largest.P - 1) * conv.values["map_row"] + (largest.Q - 1) * conv.values["map_col"]
    assert last == MAX_TEXELS - 1
    assert missing >= MAX_TEXELS and missing + last < 2**31
    with pytest.raises(ShapeError, match="the 4 GiB reach of a texture"):
        direct_plan(ConvShape(4, 1, 2**14, 2**14 + 1, 1, 1, 1))


def test_a_patch_larger_than_constant_memory_is_cut_into_whole_steps_that_accumulate():
    shape = ConvShape(4, 4096, 6, 6, 4, 3, 3, padding=1)
    passes = direct_plan(shape).passes
    assert [p.values["accumulate"] for p in passes] == [0, 1, 1]
    assert [p.values["tiles"] for p in passes] == [2048, 2048, 512]
    assert [p.values["filter_offset"] for p in passes] == [0, TABLE_ENTRIES, 2 * TABLE_ENTRIES]
    assert all(len(p.tables["offsets"]) <= 65536 for p in passes)
    whole = np.concatenate([table(p) for p in passes])
    assert np.array_equal(whole, offset_table(shape, 0, shape.patch))


def test_a_filter_alone_larger_than_constant_memory_is_cut_too():
    passes = direct_plan(ConvShape(4, 1, 200, 200, 4, 200, 200)).passes
    assert [p.values["tiles"] for p in passes] == [2048, 2048, 904]


@pytest.mark.parametrize("layer", LAYERS, ids=lambda x: f"{x.network}-{x.name}")
def test_the_papers_layers_need_one_pass_and_copy_only_for_padding(layer):
    made = direct_plan(layer.shape)
    assert len(made.passes) == 1
    assert ("map" in made.workspace) == (layer.shape.padding != (0, 0))
    assert "filter_bank" not in made.workspace
    grid = made.passes[0].grid
    assert grid == (layer.shape.Q, layer.shape.P, 2 * -(-layer.shape.K // 64))


def test_nothing_is_copied_when_the_kernel_can_read_the_arrays_as_they_are():
    made = direct_plan(ConvShape(8, 3, 5, 5, 4, 3, 3))
    assert made.workspace_bytes == 0
    assert len(made.launches) == 1
    assert made.passes[0].textures == {"texI": "images", "texF": "filters"}


def test_ragged_counts_are_padded_to_whole_texels_in_the_workspace():
    made = direct_plan(AWKWARD)
    assert made.workspace["map"].nbytes == 5 * 11 * 17 * 8 * 4
    assert made.workspace["filter_bank"].nbytes == 30 * 72 * 4
    assert [x.spec for x in made.launches[:2]] == [PAD, PAD]
    assert made.passes[0].values["n"] == 6
    assert made.passes[0].values["k"] == 70


def test_regions_alive_together_do_not_overlap_and_suit_a_texture():
    made = direct_plan(AWKWARD, layout="NCHW")
    regions = made.workspace.values()
    assert len(regions) == 5
    assert all(r.offset % 512 == 0 for r in regions)
    for a, b in itertools.combinations(regions, 2):
        together = a.first <= b.last and b.first <= a.last
        assert not together or a.offset + a.nbytes <= b.offset or b.offset + b.nbytes <= a.offset


def test_regions_that_never_live_together_share_bytes():
    made = direct_plan(AWKWARD, layout="NCHW")
    sizes = {name: -(-r.nbytes // 512) * 512 for name, r in made.workspace.items()}
    assert made.workspace["out_kpqn"].first > made.workspace["images_chwn"].last
    assert made.workspace_bytes < sum(sizes.values())
    alive = [[n for n, r in made.workspace.items() if r.first <= at <= r.last] for at in range(len(made.launches))]
    assert made.workspace_bytes <= max(sum(sizes[n] for n in names) for names in alive)


def test_nchw_arrays_are_transposed_before_and_after():
    made = direct_plan(AWKWARD, layout="NCHW")
    specs = [x.spec for x in made.launches]
    assert specs == [TRANSPOSE, TRANSPOSE, PAD, PAD, made.spec, TRANSPOSE]
    assert made.array_shapes() == {"images": (6, 5, 9, 11), "filters": (70, 5, 3, 2), "out": (6, 70, 5, 16)}
    assert made.launches[-1].values == {"dst": "out", "src": "out_kpqn", "rows": 70 * 5 * 16, "cols": 6}


@pytest.mark.parametrize("image_tiles", [1, 2, 3, 5, 7, 64, 127, 1000, 4095, 32768])
def test_the_magic_number_divides_every_tile_index_exactly(image_tiles):
    made = direct_plan(ConvShape(64 * image_tiles, 1, 1, 1, 64, 1, 1))
    magic = made.passes[0].values["tile_magic"]
    z = np.arange(65536, dtype=np.uint64)
    assert np.array_equal(z * np.uint64(magic) >> np.uint64(31), z // np.uint64(image_tiles))
    assert magic < 2**32


def test_every_kernel_parameter_gets_a_value_in_order():
    made = direct_plan(AWKWARD, layout="NCHW")
    places = {name: (0x1000, 64) for name in ("images", "filters", "out", *made.workspace)}
    for launch in made.launches:
        launch.check()
        assert len(launch.arguments(places, {"alpha": 1.0})) == len(launch.spec.params)
        for param in launch.spec.params:
            value = launch.values[param.name]
            assert isinstance(value, str) == (param.type in ("ptr", "f32")), param.name
            assert isinstance(value, str) or 0 <= value < 2**32
        assert set(launch.textures) == set(launch.spec.textures)


@pytest.mark.parametrize("broken, words", [
    (dict(values={"dst": "map", "src": "images"}), "spad: values must be given for dst, src, c, h"),
    (dict(textures={"texI": "images"}), "spad: textures must be given for nothing (got texI)"),
    (dict(tables={"offsets": b""}), "spad: tables must be given for nothing (got offsets)"),
])
def test_a_launch_that_does_not_fit_its_kernel_is_refused(broken, words):
    launch = next(x for x in direct_plan(AWKWARD).launches if x.spec is PAD)
    launch.check()
    with pytest.raises(LaunchError, match=re.escape(words)):
        dataclasses.replace(launch, **broken).check()
    for value in (2**32, -1, "images"):
        with pytest.raises(LaunchError, match="spad: pad_h"):
            dataclasses.replace(launch, values={**launch.values, "pad_h": value}).check()


ENDINGS = [(dict(bias=True), "bias"), (dict(activation="relu"), "activation 'relu'"), (dict(reads_out=True), "beta")]


@pytest.mark.parametrize("change, words", ENDINGS)
def test_what_a_family_refuses_another_serves(change, words):
    asked = forward(AWKWARD, **change)
    assert paper.FAMILY.unsupported_reason(asked) == words
    assert choose(asked, preset()).family != paper.FAMILY.name
    with pytest.raises(ShapeError, match=f"kernel must be one of .*sconv_pixels.* \\(got '{CONV_64X64.name}'\\)"):
        choose(asked, preset(), CONV_64X64.name)


@pytest.mark.parametrize("change, words", [(dict(), "arrays that are not C-contiguous"), *ENDINGS])
def test_what_no_family_serves_is_refused_by_name(change, words):
    asked = forward(AWKWARD, **change)
    strided = asked.with_strides("filters", (1, 2, 3, 4))
    with pytest.raises(ShapeError) as error:
        choose(strided, preset())
    assert str(error.value) == (f"not served: {words} by direct; N=6, no multiple of 4 by taps; "
                                "filters that are not C-contiguous by pixels; other filters than 1 x 1, or stride, "
                                "padding or groups by pointwise; other filters than 1 x 1, or stride, padding or "
                                "groups by product of channels; arrays that are not C-contiguous by depthwise; "
                                "stride 2x1 by winograd; stride 2x1 by winograd_fused; stride 2x1 by fft; "
                                "a single group by fft groups")


def test_an_unknown_activation_is_refused():
    with pytest.raises(ShapeError, match=r"activation must be one of None, relu, .* \(got 'tanh'\)"):
        forward(AWKWARD, activation="tanh")


def test_a_region_read_before_it_is_written_is_a_mistake_of_the_family():
    made = direct_plan(AWKWARD)
    with pytest.raises(AssertionError, match="region map is read before anything is written there"):
        make(made.problem, made.family, made.spec, made.passes, {"map": 64})


def test_arrays_that_begin_anywhere_are_copied_and_explain_says_so():
    shape = ConvShape(8, 3, 5, 5, 4, 3, 3)
    text = direct_plan(shape, copy_images=True, copy_filters=True).explain()
    assert text.count("(they begin where no texture may)") == 2
    copied = direct_plan(shape, layout="NCHW", copy_images=True)
    assert copied.explain() == direct_plan(shape, layout="NCHW").explain()


@pytest.mark.parametrize("shape", [AWKWARD, ConvShape(4, 4096, 6, 6, 4, 3, 3),
                                   ConvShape(6, 8, 9, 11, 12, 3, 2, groups=4)],
                         ids=str)
@pytest.mark.parametrize("kernel", [None, CONV_64X64.name], ids=["chosen", "direct"])
def test_the_launches_share_the_useful_work(shape, kernel):
    made = plan(shape, layout="NCHW", kernel=kernel)
    assert sum(x.flops for x in made.launches) == made.flops == shape.flops
    assert all((x.flops > 0) == (x.spec is made.spec) for x in made.launches)


def test_groups_share_one_region_for_their_maps():
    made = direct_plan(ConvShape(6, 8, 9, 11, 12, 3, 2, padding=1, groups=4))
    assert [x.spec for x in made.launches] == [PAD, *[PAD, made.spec] * 4]
    assert made.workspace["map"].nbytes == 4 * 2 * 11 * 13 * 8
    assert "4 launches, each of" in made.explain() and "a launch for each of 4 groups" in made.explain()


def test_explain_names_padding_copies_and_the_cost_of_ragged_tiles():
    text = direct_plan(AWKWARD).explain()
    assert "zero-padded map of 5 x 11 x 17 x 8 (N=6 is no multiple of 4)" in text
    assert "filters are copied to 5 x 3 x 2 x 72 (K=70 is no multiple of 4)" in text
    use = (6 / 64) * (70 / 128) * (30 / 32)
    assert f"ragged tiles cost {1 - use:.1%} of the efficiency" in text
    assert tile_use(AWKWARD, CONV_64X64) == (6 / 64, 70 / 128, 30 / 32)


def test_explain_counts_the_launches_of_a_split_layer():
    assert "3 launches, each of 4 x 4 x 1 blocks" in direct_plan(ConvShape(4, 4096, 6, 6, 4, 3, 3)).explain()


def test_an_equal_layer_gets_the_same_plan():
    assert plan(ConvShape(8, 3, 5, 5, 4, 3, 3)) is plan(ConvShape(8, 3, 5, 5, 4, 3, 3, (1, 1), (0, 0)))


def test_a_plan_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan(AWKWARD).family = "other"


@pytest.mark.parametrize("shape, words", [
    (ConvShape(4, 1, 2**14, 2**14 + 1, 4, 1, 1), "must be at most 268435456 texels, the 4 GiB reach of a texture"),
    (ConvShape(1, 1, 2**14, 2**14, 1, 1, 1, padding=1), "padded map C x (H + 2 padding) x (W + 2 padding) x N/4"),
    (ConvShape(1, 2**14, 1, 1, 2**18, 1, 1), "filters C x R x S x K/4"),
    (ConvShape(1, 1, 2**14, 2**14, 16, 1, 1), "output K x P x Q x N must be at most 4294967295 elements"),
    (ConvShape(4, 1, 65536, 1, 4, 1, 1), "output rows P must be at most 65535 blocks along y"),
    (ConvShape(4, 1, 65534, 1, 4, 3, 1, padding=1, stride=2), "padded map rows H + 2 padding must be at most 65535"),
    (ConvShape(64 * 32768 + 1, 1, 1, 1, 4, 1, 1), "image tiles N/64 must be at most 32768"),
    (ConvShape(64 * 256, 1, 1, 1, 64 * 256, 1, 1), "tiles N/64 x K/64 must be at most 65535 blocks along z"),
])
def test_a_layer_beyond_a_limit_is_refused_with_the_limit(shape, words):
    with pytest.raises(ShapeError) as error:
        direct_plan(shape)
    assert words in str(error.value)


def test_a_map_of_exactly_the_textures_reach_is_planned():
    assert direct_plan(ConvShape(4, 2**12, 2**8, 2**8, 4, 1, 1)).workspace_bytes == 0


def test_the_kernel_whose_tiles_waste_least_is_chosen_and_the_papers_among_equals(monkeypatch):
    monkeypatch.setattr(registry, "FAMILIES", (paper.FAMILY,))
    chosen = {f"{x.network}-{x.name}": plan(x.shape).spec for x in LAYERS}
    assert chosen.pop("overfeat-L1") is CONV_128X32  # 96 filters: three tiles of 32 instead of one and a half of 64
    assert set(chosen.values()) == {CONV_64X64}
    assert tile_use(LAYERS[5].shape, CONV_64X64)[1] == 0.75
    assert tile_use(LAYERS[5].shape, CONV_128X32)[1] == 1.0


def test_the_planner_leaves_out_the_taps_outside_the_map_where_that_saves_most():
    families = {f"{x.network}-{x.name}": plan(x.shape, algorithm="direct").family for x in LAYERS}
    others = {name: family for name, family in families.items() if family != "taps"}
    assert others == {"alexnet-conv1": "pixels", "overfeat-L1": "direct", "overfeat-L2": "direct"}


@pytest.mark.parametrize("elements, tiles", [(6, [1]), (8, [2]), (9, [2]), (16384, [2047, 2])])
def test_the_papers_loop_runs_once_more_when_8_divides_the_elements(elements, tiles):
    """16384 elements and the extra iteration do not fit into the table, and only the last launch has one."""
    launches = plan(ConvShape(4, elements, 1, 1, 4, 1, 1), kernel=CONV_PAPER.name).passes
    assert [x.values["tiles"] for x in launches] == tiles
    tables = [np.frombuffer(x.tables["offsets"], np.int32) for x in launches]
    assert [len(t) for t in tables] == [8 * t for t in tiles]
    used = np.concatenate(tables)
    assert (used[:elements] == np.arange(elements)).all() and (used[elements:] == OUT_OF_RANGE).all()


def test_the_estimate_of_a_full_layer_is_near_the_simulation():
    """The ten layers as recorded with the benchmark, by the kernel of the paper."""
    root = pathlib.Path(__file__).parents[2]
    rows = json.loads((root / "benchmarks" / "results" / "alexnet_overfeat.json").read_text())["layers"]
    assert len(rows) == len(LAYERS)
    for layer, row in zip(LAYERS, rows, strict=True):
        work = [x.work for x in plan(layer.shape, kernel=row["kernel"]).passes]
        assert sum(w.clocks(preset()) for w in work) == pytest.approx(row["clocks"], rel=0.03), layer.name


def test_an_unknown_kernel_is_refused():
    with pytest.raises(ShapeError, match="kernel must be one of sconv_fprop_K64_N64, sconv_fprop_K32_N128"):
        plan(AWKWARD, kernel="spad")


def test_an_unknown_layout_is_refused():
    with pytest.raises(ShapeError, match="layout must be one of CHWN, NCHW"):
        plan(AWKWARD, layout="NHWC")


def test_the_public_name_is_the_function():
    assert maxdnn.plan is plan
    assert maxdnn.plan(LAYERS[0].shape).flops == LAYERS[0].shape.flops


@pytest.mark.parametrize("layout, kernel", [("CHWN", CONV_64X64), ("CHWN", CONV_128X32), ("CHWN", CONV_PAPER),
                                            ("NCHW", CONV_64X64)],
                         ids=["CHWN-64x64", "CHWN-128x32", "CHWN-paper", "NCHW-64x64"])
@pytest.mark.parametrize("shape", [
    AWKWARD,
    ConvShape(8, 3, 5, 5, 4, 3, 3),
    ConvShape(130, 2, 4, 3, 129, 2, 1, (1, 2), (0, 2)),
    ConvShape(1, 1, 1, 1, 1, 1, 1, 3, 2),
    ConvShape(3, 2000, 3, 3, 2, 3, 3, 2, 1),  # two passes
    ConvShape(5, 4, 9, 8, 6, 3, 2, (2, 1), 1, (2, 3)),
    ConvShape(8, 16, 4, 4, 8, 3, 3, groups=2),  # groups whose maps lie where textures may begin
    ConvShape(6, 6, 5, 5, 15, 2, 2, 1, 1, groups=3),
    ConvShape(4, 5, 4, 4, 5, 3, 3, 1, 1, groups=5),  # depthwise
], ids=str)
def test_the_launches_compute_the_convolution_by_the_kernels_documentation(shape, layout, kernel):
    rng = np.random.default_rng(11)
    images = rng.uniform(-1, 1, (shape.C, shape.H, shape.W, shape.N)).astype(np.float32)
    filters = rng.uniform(-1, 1, (shape.C // shape.groups, shape.R, shape.S, shape.K)).astype(np.float32)
    want, magnitude = conv_reference(images, filters, stride=shape.stride, padding=shape.padding, alpha=0.5,
                                     dilation=shape.dilation, groups=shape.groups)
    if layout == "NCHW":
        images, filters = np.ascontiguousarray(images.transpose(3, 0, 1, 2)), np.ascontiguousarray(
            filters.transpose(3, 0, 1, 2))
        want, magnitude = want.transpose(3, 0, 1, 2), magnitude.transpose(3, 0, 1, 2)
    made = plan(shape, layout=layout, kernel=kernel.name)
    out = run_plan(made, {"images": images, "filters": filters}, alpha=0.5)["out"]
    assert relative_error(out, want, magnitude) < 1e-6


def test_a_first_layer_of_many_images_goes_where_it_is_fast():
    """With images innermost neighbouring taps share no line. Natively that costs less than a padded copy of the map, in
    a translation, whose copies are cheap, more."""
    layer = next(x.shape for x in LAYERS if x.network == "alexnet" and x.name == "conv1")
    assert choose(forward(layer), preset(), algorithm="direct").family == "pixels"
    translating = Chip("translated", 132, 2400.0, runs_maxwell=False)
    assert choose(forward(layer), translating, algorithm="direct").family == "direct"


def test_what_refused_candidates_raised_keeps_nothing_of_the_callers_alive():
    """Tensors of a caller above all, with the gradients that hang on them."""
    def call():
        held = np.empty(1)
        assert "sconv_fprop_K64_N64" not in plans(forward(ConvShape(128, 64, 512, 512, 64, 3, 3, 1, 1)), preset())
        return weakref.ref(held)
    gc.disable()
    try:
        assert call()() is None
    finally:
        gc.enable()


def test_the_plans_of_all_splits_hold_one_copy_of_a_table() -> None:
    """Of a layer with 100,000 channels there are 160 candidates with 7 MB of offsets each."""
    problem = forward(ConvShape(4, 20_000, 4, 4, 4, 3, 3), layout="NCHW")
    made = plans(problem, preset("gm204"), algorithm="direct")
    held = [launch.tables["table"] for plan in made.values() for launch in plan.launches if "table" in launch.tables]
    assert len(held) > 3 * len({id(table) for table in held})
