"""The two passes of a step: running requests first, then admission; and what they share."""
