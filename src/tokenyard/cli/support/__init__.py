"""What the sub-commands share: their flags and how these are read, what a replay needs, where results are printed."""
