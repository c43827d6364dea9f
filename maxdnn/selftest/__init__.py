"""Runs the library on a device and compares: bits of every kernel with the virtual GPU, small programs that ask silicon
what no document says, clocks of loops and seconds of plans with the timing model. Owners of Maxwell and Pascal cards
are asked for what comes out (docs/selftest.md)."""
