"""Tests of the parsers of answers."""
