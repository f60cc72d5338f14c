"""Checks of packages/pi_ai."""
