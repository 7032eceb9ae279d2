"""A simulated worker: renders, caches blocks, publishes events like a real one."""
