"""The answers in a terminal."""
