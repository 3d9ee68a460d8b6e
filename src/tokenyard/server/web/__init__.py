"""``tokenyard view``: the page, and the traces it reads, over HTTP on this machine."""
