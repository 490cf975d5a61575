"""Finished programs of known models in the disk cache, by the content of the model and all that decides about them."""
