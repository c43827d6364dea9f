"""When things happen: a cycle-level model of Maxwell's SM and memory, driven by decoded instructions and by the paths
and addresses of warps. It knows what an instruction is (isa), not what it computes."""
