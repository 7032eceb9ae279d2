"""Who may ask what: clients by their keys, operators by theirs; which paths pass."""
