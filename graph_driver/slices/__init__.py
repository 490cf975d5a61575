"""Which elements of a model's tensors depend on which: slices (Weiser, "Program slicing", 1984)."""
