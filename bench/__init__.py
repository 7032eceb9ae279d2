"""Benchmarks, run by command: `python -m bench`."""
