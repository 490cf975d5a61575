"""Derivatives of Scops as Scops: adjoints (reverse mode) and tangents (forward mode)."""
