"""Who the workers are, where nobody names each of them: DNS, Kubernetes."""
