"""Who the workers are: asked, watched, added and taken out."""
