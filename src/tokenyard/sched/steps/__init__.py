"""The values of a step: what goes to the workers, what comes back, what goes on to the clients, and why."""
