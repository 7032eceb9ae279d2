"""Proof that a worker renders as this gateway does."""
