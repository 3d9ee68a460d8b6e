"""A replay's rows: tables of its requests, steps and waits, column by column."""
