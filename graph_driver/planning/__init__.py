"""The execution plan as data: places, steps, what runs side by side; and its independent check."""
