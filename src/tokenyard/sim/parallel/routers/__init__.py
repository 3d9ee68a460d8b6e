"""Which engine gets a request: the seam, and the routers that are shipped."""
