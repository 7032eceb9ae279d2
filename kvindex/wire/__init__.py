"""One engine's KV event bytes to and from neutral events; a file per engine."""
