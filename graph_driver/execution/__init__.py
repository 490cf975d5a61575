"""Running a plan: native entry, eager steps, control flow, tensors to look at, the memory of runs."""
