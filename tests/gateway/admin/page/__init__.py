"""The live page, over HTTP and in a browser."""
