"""Which implementation each node gets: candidates with what they support, and the best choice of all together."""
