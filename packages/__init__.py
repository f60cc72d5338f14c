"""mini_pi: an agent loop in four rooms; see README.md for the map."""
