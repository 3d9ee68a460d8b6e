"""The limits of the admission pass, each with one question."""
