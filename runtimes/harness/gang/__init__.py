"""Gang: replicas that run one program together, started and numbered by their leader."""
