"""Questions that a schedule answers with exact formulas and sets."""
