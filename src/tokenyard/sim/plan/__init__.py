"""Planning: which setting meets the bounds at the least cost, and how much load it bears."""
