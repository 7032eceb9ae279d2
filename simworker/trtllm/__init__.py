"""What is TensorRT-LLM's own about a simulated worker: routes, bodies, answers."""
