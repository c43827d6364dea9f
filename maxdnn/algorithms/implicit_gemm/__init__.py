"""Convolution as a matrix product whose columns are output pixels of any image."""
