"""The ten layers of the paper's table with its figures.

Source: A. Lavin, "maxDNN: An Efficient Convolution Kernel for
Deep Learning with Maxwell GPUs" (2015), efficiency of the GTX 980 (GM204), minibatch 128; the shapes are those of the
public convnet-benchmarks: AlexNet v2 (one tower, "one weird trick") and Overfeat (fast).
"""

from dataclasses import dataclass

from .problem.shape import ConvShape

MINIBATCH = 128


@dataclass(frozen=True)
class Layer:
    """A named layer and the computational efficiency (percent) that the paper gives for it.

    Attributes
    ----------
    network : str
        "alexnet" or "overfeat".
    name : str
        Such as "conv1".
    shape : ConvShape
        With a minibatch of 128.
    paper_ce : float
        Of maxDNN, percent.
    paper_cudnn_ce : float
        Of cuDNN v2, percent.
    """

    network: str
    name: str
    shape: ConvShape
    paper_ce: float
    paper_cudnn_ce: float


def _layer(network: str, name: str, C: int, HW: int, K: int, RS: int, stride: int, padding: int, ce: float,
           cudnn: float) -> Layer:
    return Layer(network, name, ConvShape(MINIBATCH, C, HW, HW, K, RS, RS, stride, padding), ce, cudnn)


LAYERS: tuple[Layer, ...] = (
    #                          C   H=W  K    R=S stride pad maxDNN cuDNN
    _layer("alexnet", "conv1", 3, 224, 64, 11, 4, 2, 93.4, 32.5),
    _layer("alexnet", "conv2", 64, 27, 192, 5, 1, 2, 95.5, 46.7),
    _layer("alexnet", "conv3", 192, 13, 384, 3, 1, 1, 95.1, 51.5),
    _layer("alexnet", "conv4", 384, 13, 256, 3, 1, 1, 95.0, 57.6),
    _layer("alexnet", "conv5", 256, 13, 256, 3, 1, 1, 94.6, 55.9),
    _layer("overfeat", "L1", 3, 231, 96, 11, 4, 0, 70.3, 39.6),
    _layer("overfeat", "L2", 96, 24, 256, 5, 1, 0, 95.6, 74.0),
    _layer("overfeat", "L3", 256, 12, 512, 3, 1, 1, 94.4, 54.2),
    _layer("overfeat", "L4", 512, 12, 1024, 3, 1, 1, 96.2, 62.9),
    _layer("overfeat", "L5", 1024, 12, 1024, 3, 1, 1, 96.3, 63.2),
)
