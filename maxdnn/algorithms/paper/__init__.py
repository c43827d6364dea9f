"""The paper's kernel: one output pixel, tiles of images x filters, a table of offsets."""
