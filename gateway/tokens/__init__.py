"""Workers that take token ids and answer token ids, and calls that bring ids along."""
