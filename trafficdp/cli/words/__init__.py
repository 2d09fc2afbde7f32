"""What commands share: options, output, settings, sentences."""
