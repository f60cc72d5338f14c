"""Checks of examples/, and of the records in evidence/."""
