"""The command line: one module per sub-command, none with logic of its own."""
