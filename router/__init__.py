"""Choose a worker, account for load. Pure and synchronous; clocks are passed in."""
