"""Graph-to-graph rewrites and the manager that runs them with the verifier in between."""
