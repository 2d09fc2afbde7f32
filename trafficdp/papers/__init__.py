"""Published algorithms that no release executes, one paper a file or folder, to compare with."""
