"""Gradients of images of strided layers, by residue phases, and of few channels."""
