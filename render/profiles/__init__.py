"""What each engine hands its chat template; a file per engine."""
