"""What would have happened: a recorded run, replayed as it was and with other settings."""
