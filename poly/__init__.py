"""The polyhedral core: dtypes, expressions, domains, access relations, Scop, dependences, legality."""
