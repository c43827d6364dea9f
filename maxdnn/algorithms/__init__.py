"""One module per way to compute something: its kernels, the problems it serves, its candidate plans, and in NumPy what
its kernels promise. The registry names each in one line."""
