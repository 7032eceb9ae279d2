"""Workers that take token ids only, and calls that bring ids along."""
