"""A simulated worker that renders, caches blocks and publishes KV events like the real engine."""
