"""Reading a trace: its files, its lines, and the steps that they add up to."""
