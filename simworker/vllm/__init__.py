"""What is vLLM's own about a simulated worker: its routes, bodies, answers, errors."""
