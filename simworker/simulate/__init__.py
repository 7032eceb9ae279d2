"""`kv-gateway simulate`: a workload replayed on a virtual clock, policy by policy."""
