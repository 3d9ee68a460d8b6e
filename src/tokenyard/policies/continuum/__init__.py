"""CONTINUUM: the KV blocks of a finished turn are kept while its agent's tool runs (arXiv 2511.02230)."""
