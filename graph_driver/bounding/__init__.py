"""Bounds of errors of whole models: from ranges of inputs to how far each element of a result may be off."""
