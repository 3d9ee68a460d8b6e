"""What other processes see of a scheduler: metrics and KV events."""
