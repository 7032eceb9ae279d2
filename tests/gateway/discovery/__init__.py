"""How workers are found."""
