"""What each engine tells of itself, and in which words; a file per engine."""
