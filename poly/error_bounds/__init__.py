"""How far a computed value may be from the exact one: enclosures, and Scops run on them."""
