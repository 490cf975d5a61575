"""Pure edits of schedule trees, unchecked: `Schedule` asks for each whether it is legal."""
