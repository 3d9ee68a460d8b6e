"""The optional parts of a scheduler, off unless a setting turns them on."""
