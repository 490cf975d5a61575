"""The public transformations of `Schedule`, grouped by subject."""
