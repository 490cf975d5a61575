"""What `legality` and `dependences` are made of: orders of execution, conflicts, promoted regions."""
