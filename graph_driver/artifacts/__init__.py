"""A compiled model on disk: a directory, the memo of a compilation, stand-alone C."""
