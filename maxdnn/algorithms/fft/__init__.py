"""Convolution by the fast Fourier transform of tiles: see docs/fft.md."""
