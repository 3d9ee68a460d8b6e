"""Many replays: variants of one run, measured one by one, in processes or on a cluster."""
