import pytest

from maxdnn.errors import ShapeError
from maxdnn.layers import LAYERS
from maxdnn.problem.shape import ConvShape


def test_output_size_follows_stride_and_padding_per_axis():
    shape = ConvShape(2, 3, 10, 17, 5, 3, 4, stride=(2, 3), padding=(1, 0))
    assert (shape.P, shape.Q) == (5, 5)  # (10 + 2 - 3) // 2 + 1; (17 - 4) // 3 + 1
    assert (shape.str_h, shape.str_w, shape.pad_h, shape.pad_w) == (2, 3, 1, 0)


def test_dilation_spreads_the_filter_and_groups_shorten_the_patch():
    shape = ConvShape(2, 6, 10, 17, 9, 3, 4, stride=(2, 3), padding=(1, 0), dilation=(4, 5), groups=3)
    assert (shape.P, shape.Q) == (2, 1)  # (10 + 2 - 9) // 2 + 1; (17 - 16) // 3 + 1
    assert shape.patch == 2 * 3 * 4
    assert shape.flops == 2 * 2 * 2 * 1 * (24 + 1) * 9
    assert str(shape).endswith("dilation 4x5, 3 groups")


def test_flops_of_alexnet_conv1_by_hand():
    conv1 = LAYERS[0].shape
    assert (conv1.P, conv1.Q) == (55, 55)
    assert conv1.flops == 2 * 128 * 55 * 55 * (363 + 1) * 64


def test_both_efficiency_formulas_agree_when_the_clock_is_the_peak_clock():
    shape, sms, clock = LAYERS[3].shape, 16, 1.216e9
    seconds = 0.011
    by_clocks = shape.efficiency_from_clocks(sms * seconds * clock)
    assert by_clocks == pytest.approx(shape.efficiency_from_time(seconds, 2 * 128 * sms * clock))
    assert 0 < by_clocks < 1


def test_one_sm_at_full_rate_is_efficiency_one():
    shape = ConvShape(64, 1, 1, 1, 64, 1, 1)
    assert shape.efficiency_from_clocks(shape.flops / 256) == 1.0


@pytest.mark.parametrize("P, layer", list(zip([55, 27, 13, 13, 13, 56, 20, 12, 12, 12], LAYERS, strict=True)),
                         ids=[f"{x.network}-{x.name}" for x in LAYERS])
def test_the_ten_layers_have_the_papers_output_sizes(P, layer):
    assert layer.shape.P == layer.shape.Q == P
    assert layer.shape.N == 128


@pytest.mark.parametrize("change, words", [
    (dict(N=0), "N must be at least 1 (got N=0)"),
    (dict(C=-3), "C must be at least 1 (got C=-3)"),
    (dict(K=2.5), "K must be an integer (got K=2.5)"),
    (dict(R=8), "R must be at most H + 2 x padding = 7: the filter is larger than the padded map (got R=8)"),
    (dict(S=9, padding=1), "S must be at most W + 2 x padding = 8"),
    (dict(stride=0), "stride must be at least 1 (got stride=0)"),
    (dict(stride=(1, 2, 3)), "stride must be one integer or a pair (rows, columns)"),
    (dict(padding=(0, -1)), "padding must be at least 0 (got padding=-1)"),
    (dict(padding="1"), "padding must be an integer"),
    (dict(dilation=0), "dilation must be at least 1 (got dilation=0)"),
    (dict(dilation=(1, 4), padding=1), "S must be at most W + 2 x padding = 8: the filter is larger than the padded "
                                       "map (got S=3, which dilation 4 spreads over 9)"),
    (dict(groups=2), "groups must divide C (got groups=2, C=3)"),
    (dict(groups=3), "groups must divide K (got groups=3, K=2)"),
    (dict(groups=1.5), "groups must be an integer"),
])
def test_a_shape_that_is_no_layer_is_refused_by_name_and_value(change, words):
    sizes = dict(N=4, C=3, H=7, W=6, K=2, R=3, S=3)
    with pytest.raises(ShapeError) as error:
        ConvShape(**{**sizes, **change})
    assert words in str(error.value)


def test_efficiency_refuses_a_time_that_is_not_positive():
    with pytest.raises(ShapeError, match="seconds must be positive"):
        LAYERS[0].shape.efficiency_from_time(0.0, 1e12)


def test_equal_layers_are_equal_whatever_way_they_were_written():
    assert ConvShape(1, 1, 5, 5, 1, 3, 3, 1, 1) == ConvShape(1, 1, 5, 5, 1, 3, 3, (1, 1), [1, 1])
    assert len({ConvShape(1, 1, 5, 5, 1, 3, 3, 1), ConvShape(1, 1, 5, 5, 1, 3, 3, (1, 1))}) == 1
