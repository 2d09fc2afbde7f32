"""The door of a stream: charge once, take, commit, publish; its order, files, feeds, checking."""
