"""The front door: all I/O - HTTP, upstreams, event sockets, polling, metrics, CLI."""
