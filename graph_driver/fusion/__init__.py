"""From nodes to groups that run as one step, each composed into one Scop."""
