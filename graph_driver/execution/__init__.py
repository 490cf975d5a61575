"""Running a plan: native entry, eager steps, control flow, the host's operators, profiles."""
