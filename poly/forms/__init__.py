"""Between isl's objects, our expressions and text: quasi-affine functions, conditions, boxes."""
