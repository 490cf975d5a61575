"""The reference: loop IR run step by step, launches with blocks, threads and barriers too."""
