"""Calls of tools, read out of what a model says; each form that models write them in is a module."""
