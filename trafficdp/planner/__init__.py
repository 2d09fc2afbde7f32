"""From public facts to an allocation of noise, its errors, and suggestions. Cannot import people's values."""
