"""Prometheus metrics, written as things happen or read at each scrape."""
