"""The way of one request: read, described, sent, relayed, accounted for."""
