"""What is wrong with a server that runs, from what it says of itself: metrics, its log, no trace and no restart."""
