"""What the gateway says of itself under /gateway, and to whom."""
