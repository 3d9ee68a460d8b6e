"""How did a run go? The report and the figures in it."""
