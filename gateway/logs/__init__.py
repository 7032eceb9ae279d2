"""What is logged: how lines look, a line for each request, never text of a prompt."""
