"""OpenTelemetry: the record of a request, its spans, and their way to a collector."""
