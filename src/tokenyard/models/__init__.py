"""What a model is made of: layers, weights and their formats, read from what people have."""
