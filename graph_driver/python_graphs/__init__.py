"""Graphs that a Python program makes: traces of functions over arrays, a builder, batches of trees.

`tensors.py` has what stands for an array: it takes Python's operators, NumPy's functions and operators of the
language, and records nodes (`recording.py`). `trace.py` calls a function with such tensors, `builder.py` hands them to
the user; both compile the graph as any other model. Three ways to run the same function are there: the function itself
on NumPy's arrays, the graph node by node (`interpreting.py`), and its kernels.

To add a function of NumPy: write it in `ufuncs.py`, `reductions.py` or `movement.py` with the decorator that has its
name; it gets the `Recording` and the function's own arguments, arrays as `Value`s, and returns a `Value`.
"""
