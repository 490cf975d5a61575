"""Loop IR to LLVM IR and machine code."""
