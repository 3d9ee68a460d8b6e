"""The second half of a step: sampled tokens become output, stops and ends."""
