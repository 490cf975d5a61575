"""Models that keep what they have computed: a changed region of an input computes again only what depends on it."""
