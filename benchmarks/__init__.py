"""How fast a round is, beside its floor and its rivals. Measured by hand, never asserted by a test."""
