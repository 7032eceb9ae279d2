"""Which worker holds which blocks. Sans-I/O."""
