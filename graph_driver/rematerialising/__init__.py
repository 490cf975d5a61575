"""Memory for time: which values are dropped and computed again, so that a program fits a number of bytes."""
