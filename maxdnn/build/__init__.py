"""From kernel source to checked cubin, and the interface that a cubin declares."""
