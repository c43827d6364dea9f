"""Questions put to a card of sm_90 in machine code, whose answers are figures of a preset."""
