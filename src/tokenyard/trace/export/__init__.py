"""Ways out to other tools: Perfetto, Chrome's trace viewer, OpenTelemetry, and a page that holds its trace."""
