"""Several engines behind one address, on Ray Serve: each is a whole server, and who has seen a beginning gets the rest.

client ── IngressDeployment ── router ── Replica: an engine and its application
                      └───── Replica
"""
