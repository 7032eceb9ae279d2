"""Requests to workers and their answers, on connections of our own."""
