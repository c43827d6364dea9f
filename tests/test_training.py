"""The example of docs/training.md: three convolutions trained on the virtual GPU come to the losses of the same
training in float64 NumPy."""

import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from maxdnn import ConvShape
from maxdnn.reference import conv_reference
from tests.gradients import gradient

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = (ROOT / "docs/training.md").read_text()
CODE, PRINTED = re.search(r"```python\n(.*?)```\n\n```\n(.*?)```", DOCUMENT, re.S).groups()


def shape_of(images, filters, options):
    (c, h, w, n), (_, r, s, k) = images, filters
    return ConvShape(n, c, h, w, k, r, s, **options)


def conv_fprop(images, filters, *, bias, activation, **options):
    out = conv_reference(images, filters, **options)[0] + bias[:, None, None, None]
    return np.maximum(out, 0) if activation else out


def conv_bprop_data(gradients, filters, size, **options):
    shape = shape_of((len(filters), *size, gradients.shape[-1]), filters.shape, options)
    return gradient(shape, "data", None, filters, gradients)[0].copy()


def conv_bprop_filters(images, gradients, size, **options):
    shape = shape_of(images.shape, (len(images), *size, len(gradients)), options)
    return gradient(shape, "filters", images, None, gradients)[0]


NUMPY = SimpleNamespace(conv_fprop=conv_fprop, conv_bprop_data=conv_bprop_data, conv_bprop_filters=conv_bprop_filters,
                        conv_bprop_bias=lambda gradients: gradients.sum((1, 2, 3)))


@pytest.mark.long
def test_fifty_steps_print_what_the_document_says_and_come_to_the_loss_of_float64(capsys):
    example = {"__name__": "__main__"}
    exec(CODE, example)
    assert capsys.readouterr().out == PRINTED
    wanted = example["train"](NUMPY, np.float64)
    assert wanted[-1] < wanted[0] / 2 and len(wanted) == 50
    assert example["losses"] == pytest.approx(wanted, rel=1e-4)
