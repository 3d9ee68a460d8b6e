"""Small logs of one made-up traffic, as many systems write them: what ``tests/samples/logs`` holds."""
