"""The live page at `/gateway/`: its files as they are, and what it asks for."""
