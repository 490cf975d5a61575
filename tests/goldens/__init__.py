"""What the automatic strategies make today, frozen: schedule trees and emitted loops by their hashes.

A change of a golden is a decision: it is committed with the measurement that justifies it.
"""
