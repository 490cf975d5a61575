"""Runnable examples; every one runs in the tests."""
