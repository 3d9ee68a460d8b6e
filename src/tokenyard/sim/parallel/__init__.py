"""Several engines that are one deployment: data parallelism on one virtual clock, and who gets which request."""
