"""A virtual Maxwell GPU: kernels are translated to vector code of this computer's CPU, one warp per vector, and run
with every access checked. Knows what programs compute, not how long they would take."""

from .gpu import VirtualGpu

__all__ = ["VirtualGpu"]
