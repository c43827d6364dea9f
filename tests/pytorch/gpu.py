"""For the tests on a real GPU."""

import pytest
import torch
from torch import nn

import maxdnn.torch as mt

CUDA = torch.device("cuda", 0)


@pytest.fixture(autouse=True)
def no_tf32():
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False


def close(found, wanted, tolerance=1e-5):
    assert found.shape == wanted.shape and found.dtype == torch.float32
    assert (found.double() - wanted).abs().max() <= tolerance * max(wanted.abs().max().item(), 1e-3)


def layers():
    return nn.Sequential(nn.Conv2d(3, 32, 7, 2, 3), nn.ReLU(), nn.Conv2d(32, 48, 3, padding=1, bias=False),
                         nn.BatchNorm2d(48), nn.ReLU(), nn.Conv2d(48, 24, 1), nn.Conv2d(24, 24, (1, 7), padding="same"),
                         nn.Conv2d(24, 10, 2, padding="same"))


def networks():
    torch.manual_seed(0)
    stock = layers().to(CUDA)
    own = layers().to(CUDA)
    own.load_state_dict(stock.state_dict())
    return mt.replace(own), stock
