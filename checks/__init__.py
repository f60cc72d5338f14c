"""Checks of what README.md and design.md promise. `python3 -m checks` runs them all."""
