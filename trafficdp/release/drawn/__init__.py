"""What was drawn: kept, given again, and asked whether it has the law that was charged."""
