"""What is generated for Prometheus and Grafana, by itself and against live parts."""
