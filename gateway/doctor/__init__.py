"""`kv-gateway doctor`: what is wrong with each worker, and what mends it."""
