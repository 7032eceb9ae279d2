"""Rendering and derendering as a service, over HTTP."""
