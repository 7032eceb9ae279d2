"""Several processes on one port, each a whole gateway, and the parent of them."""
