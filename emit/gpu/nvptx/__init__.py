"""The kernels of a GPU function as LLVM IR for NVIDIA's GPUs (NVPTX), and the PTX that LLVM makes of it."""
