"""Every statistic by a mechanism of its own, frozen and read back."""
