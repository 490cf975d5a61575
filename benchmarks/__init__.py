"""Timings as ratios in one run: ours against a peer, interleaved, threads pinned."""
