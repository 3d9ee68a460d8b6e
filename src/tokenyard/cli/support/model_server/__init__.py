"""What `tokenyard serve` puts together: engine, trace, application, and what goes on beside it."""
