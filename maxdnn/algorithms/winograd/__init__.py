"""Winograd convolution: three transforms around a batch of matrix products."""
