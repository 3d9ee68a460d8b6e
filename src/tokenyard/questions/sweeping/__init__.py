"""Many replays: variants of one run, measured one by one or in processes."""
