"""Whom did a step hold back, and why? The recorded reasons, and the classifier for traces without them."""
