"""An OpenAI request to token ids, on a CPU. No sockets."""
