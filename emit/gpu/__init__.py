"""Code for GPUs: lowering, CUDA C and OpenCL C, compilers, devices."""
