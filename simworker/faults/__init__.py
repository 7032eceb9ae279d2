"""What can go wrong with a simulated worker's events, on purpose."""
