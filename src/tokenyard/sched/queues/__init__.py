"""The waiting queues and the running list."""
