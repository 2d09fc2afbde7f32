"""Audits by draws: lower bounds of epsilon on neighbouring data, and mechanisms with deliberate mistakes."""
