"""The loop IR: nodes, printer, verifier, and what can be known of it."""
