"""Checks certificates of generated loops: `python -m polyc.emit.proof.checker FILE`.

This folder needs islpy and nothing of polyc; it runs as well from anywhere else. The loops are
parsed anew. With isl it decides for all sizes that every instance runs exactly once, that all
conflicts keep their order, and that accesses are inside the arrays. What each store computes, and
that buffers hold current values, it checks by running the loops on version numbers in place of
values, at all small sizes; of loops whose sizes are numbers the first 20,000 stores run.
"""
