"""All families, one line each. Of candidates with equal estimates the first is taken."""

from collections.abc import Mapping

from ..build.interface import KernelSpec
from .depthwise import plan as depthwise
from .depthwise import wgrad as depthwise_wgrad
from .dgrad_strided import few_channels
from .dgrad_strided import maxwell as dgrad_strided
from .dgrad_strided import sm90 as dgrad_strided_sm90
from .dgrad_strided import tensor_cores as dgrad_strided_tensor_cores
from .fft import group_filters as fft_group_filters
from .fft import groups as fft_groups
from .fft import plan as fft
from .fft import wgrad as fft_wgrad
from .gemm import channels_last, pointwise, tensor_cores
from .gemm import plan as gemm
from .implicit_gemm import maxwell as implicit_gemm
from .implicit_gemm import sm90 as implicit_gemm_sm90
from .implicit_gemm import tensor_cores as implicit_gemm_tensor_cores
from .implicit_gemm import tensor_windows
from .interior import maxwell as interior
from .interior import sm90 as interior_sm90
from .memory_ops import bias_grad
from .memory_ops import plan as memory_ops
from .paper import plan as paper
from .spec import Family
from .wgrad import plan as wgrad
from .wgrad import sm90_nchw as wgrad_nchw
from .wgrad import tensor_cores as wgrad_tensor_cores
from .winograd import fused as winograd_fused
from .winograd import plan as winograd
from .winograd import wgrad as winograd_wgrad

FAMILIES: tuple[Family, ...] = (
    paper.FAMILY,
    interior.FAMILY,
    interior_sm90.FAMILY,
    implicit_gemm_sm90.FAMILY,
    implicit_gemm_tensor_cores.FAMILY,
    tensor_windows.FAMILY,
    implicit_gemm.FAMILY,
    dgrad_strided.FAMILY,
    dgrad_strided_sm90.FAMILY,
    dgrad_strided_tensor_cores.FAMILY,
    pointwise.FAMILY,
    channels_last.FAMILY,
    depthwise.FAMILY,
    depthwise_wgrad.FAMILY,
    few_channels.FAMILY,
    wgrad.FAMILY,
    wgrad_nchw.FAMILY,
    wgrad_tensor_cores.FAMILY,
    bias_grad.FAMILY,
    winograd.FAMILY,
    winograd_fused.FAMILY,
    winograd_wgrad.FAMILY,
    fft.FAMILY,
    fft_wgrad.FAMILY,
    fft_groups.FAMILY,
    fft_group_filters.FAMILY,
    gemm.FAMILY,
    tensor_cores.FAMILY,
    memory_ops.FAMILY,
)


def kernels() -> Mapping[str, KernelSpec]:
    """Every kernel by its symbol."""
    return {spec.name: spec for family in FAMILIES for spec in family.kernels}
