"""Loop IR to C: GNU C with vector extensions and OpenMP, plain C99, and what CUDA and OpenCL share with them."""
