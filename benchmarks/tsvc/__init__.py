"""TSVC: polyc beside gcc and clang, loop by loop: times, vectorised loops, what forbids the others.

`python -m benchmarks --family tsvc --tsvc-source FOLDER`: the folder has a checkout of UoB-HPC/TSVC_2, whose loops are
compiled as they are, into a temporary folder.
"""
