"""Translation validation: the loop IR of a kernel, read back and proved against its Scop alone.

Neither the schedule tree nor isl's AST is looked at, so a mistake in either, or in their
translation, shows here. What is proved of the loops (before they are unrolled and vectorised):

    interface   arguments, sizes and local arrays are the Scop's
    domain      every statement instance runs exactly once
    order       every conflict keeps its order; parallel and vector loops carry none
    values      every store computes the statement's value from the statement's elements
    buffers     a promoted buffer's cells stand for one element each, lie inside it, hold the
                element's value when they are read and give it back when it is needed

After Pnueli et al., "Translation Validation", TACAS 1998; the domain proof is loopy's
`check_implemented_domains`. `proven.py` is the entry.
"""
