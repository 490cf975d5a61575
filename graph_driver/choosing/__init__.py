"""Which implementation each node gets: candidates with what they support, the best choice of all
together; convolutions that become Winograd's, and siblings that become one."""
