"""What the library itself costs, beside a naive urllib loop and beside its peers."""
