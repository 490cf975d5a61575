"""Threads and memory of a block on a GPU where there is no product: rows, reductions, scans, pointwise nests.

Blocks of 128 to 256 threads are what NVIDIA proposes to begin with (CUDA C++ Best Practices Guide, "Thread and Block
Heuristics"). The other numbers are choices from there; none was measured on a GPU.
"""

MOST = 256  # threads of a block, along one loop or over one row
TILE_THREADS = (32, 8)  # along two loops: a warp along the contiguous one
TRANSPOSED_ROWS = 16  # along y where neighbouring elements lie along y: 64 bytes of an array of f32

EACH = 16  # elements of a row for each thread, where that takes more threads
FEWEST = 32  # iterations of an inner loop below which a thread for each row does as well: one warp
SECOND = 16  # threads of the second stage of a reduction
STRETCH = EACH * MOST  # iterations of a reduction for one block
FEWEST_REDUCED = 512  # iterations below which one thread does as well

RESERVED = 4096  # bytes of shared memory for the partial results of reductions
LARGEST = EACH * MOST  # elements of a row whose length comes with the call

SCAN_ROWS = 32  # of a block, one a thread
SCAN_PANEL = 32  # elements of a row
FEWEST_SCANNED = 64  # elements of a row below which panels do not pay: two of them

THREAD_BYTES = 256  # of one local array, in the registers of a thread: 64 of its 255
BLOCK_SHARE = 4  # of one local array: this part of a block's shared memory
