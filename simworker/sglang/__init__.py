"""What is SGLang's own about a simulated worker: routes, bodies, answers, errors."""
