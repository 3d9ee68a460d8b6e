"""How many KV blocks a model leaves room for on a GPU."""
