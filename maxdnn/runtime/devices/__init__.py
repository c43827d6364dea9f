"""Where kernels run: the protocol every device fulfils, the virtual GPU, real GPUs, and how an array finds its own."""
