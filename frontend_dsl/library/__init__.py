"""The operator library: factories that make DSL operators for given element types and sizes.

Every `make_x` returns an ordinary operator; array arguments may be any row-major view of
the tensor (dimensions merged or split), since only flat memory counts.
"""
