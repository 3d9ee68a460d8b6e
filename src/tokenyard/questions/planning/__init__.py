"""Planning: which setting meets the bounds at the least cost, and what comes nearest."""
