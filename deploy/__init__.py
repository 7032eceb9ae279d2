"""What runs beside the gateway, and the descriptions it is generated from."""
