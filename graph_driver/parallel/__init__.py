"""One model over several ranks: which rank has which part of each tensor, what that sends, and the ranks' programs."""
