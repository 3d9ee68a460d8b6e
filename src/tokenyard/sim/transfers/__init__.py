"""KV transfers in a replay: nothing is moved, but it takes as long as if it were."""
