"""What is wrong with a run, since when, whose requests it is, what would help, and how sure that is: one answer."""
