"""The trace format: its records and settings, and the values that readers and writers share."""
