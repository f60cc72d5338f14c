"""The conversation in a terminal."""
