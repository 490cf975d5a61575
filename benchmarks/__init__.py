"""Timings as ratios in one run: ours against a peer, interleaved, threads pinned.

Importing anything here gives every library one thread: they read these variables when they are imported.
"""

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_variable] = "1"
