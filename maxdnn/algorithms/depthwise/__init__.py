"""Grouped convolution of few channels a group."""
