"""Code generation: schedule tree to loop IR to LLVM IR, C, CUDA, OpenCL; build, cache, run."""
