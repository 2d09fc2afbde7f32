"""The door of a stream: charge once, take, commit, publish; its specification, files, feeds, checking."""
