"""Writing a trace: the observer, its records, and the thread that puts them on the disk."""
