"""Five steps from one request to a whole agent loop: read them in order."""
