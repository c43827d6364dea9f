"""Matrix products, and convolutions with filters of one tap."""
