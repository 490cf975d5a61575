"""From loops bound to blocks and threads to launches, and what makes launches fast: all on the loop IR."""
