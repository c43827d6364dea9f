"""What is to be computed: sizes, operands, limits. Knows no kernel and no device."""
