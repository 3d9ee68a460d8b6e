"""Tokens of an image by the rule of the model that reads it."""
