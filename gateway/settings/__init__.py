"""Every option: declared once, read from the command line and the environment."""
