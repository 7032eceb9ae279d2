"""KV events on their way from the workers into the index."""
