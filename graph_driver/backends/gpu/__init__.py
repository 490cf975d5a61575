"""GPUs: CUDA and OpenCL, kernels of all sizes known, memory that stays on the device."""
