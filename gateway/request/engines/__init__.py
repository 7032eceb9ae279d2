"""What in a body keeps its blocks from those of others, by engine; a file per engine.

Each has `split`, of a model's name that no worker lists, and `namespace`, of a body.
What an engine's events do not tell is `untold`: such blocks are known by history only.
"""
