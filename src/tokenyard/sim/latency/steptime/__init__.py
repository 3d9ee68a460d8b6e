"""Step times by physics with a few fitted constants."""
