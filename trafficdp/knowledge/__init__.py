"""Public facts about places that are known before a record is read."""
