"""Built-in workloads: seeded, with the traits that matter to a scheduler and no more."""
