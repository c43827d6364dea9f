"""Convolution of many images, one output pixel a CTA, that skips taps beyond the border."""
