"""Schedule programs: what to do with a kind of nest, as functions from a schedule to a schedule by public steps.

Each takes what was recognised and its parameters as plain data; nothing here decides anything.
"""
