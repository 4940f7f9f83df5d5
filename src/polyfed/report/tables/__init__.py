"""Tables as plain values, ready for a template."""
