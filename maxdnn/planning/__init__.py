"""Plans as data, what they cost on a chip, which one is taken, what was measured. Knows no device."""
