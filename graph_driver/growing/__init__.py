"""Models whose caches grow, with room ahead: rows are written behind those that are there, nothing is moved."""
