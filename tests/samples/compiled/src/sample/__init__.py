"""A small package that is compiled, or runs from its text."""

from os import environ

from tokenyard.compiled import prefer_text

if environ.get("TOKENYARD_INTERPRETED", "0") not in ("", "0"):
    prefer_text(__path__[0])
