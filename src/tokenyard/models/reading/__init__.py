"""Models read from the ``config.json`` of a Hugging Face checkpoint, by its fields."""
