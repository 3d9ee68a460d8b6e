"""The optional parts of a scheduler, one module each; off unless configured."""
