"""Strategies: how the automatic schedule is found. `auto` runs them; each proposes, legality decides."""
