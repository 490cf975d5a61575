"""What people ask about compiled code: why this schedule, how long, which kernel maps where."""
