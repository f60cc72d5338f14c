"""mini_pi: an agent loop in four rooms; see README.md for the map."""

__version__ = "0.2.0"
