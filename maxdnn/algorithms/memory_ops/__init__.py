"""Padding, transposes, sums of partial results, and the gradient of a bias."""
