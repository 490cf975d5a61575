"""What an autotuner may try for one Scop, and in which order. Nothing is measured here."""
