"""One command a file. What opens a store is imported within them: who asks for help need not wait."""
