"""PolyBench/C's 30 kernels: polyc's automatic schedule beside C compilers and polyhedral peers."""
