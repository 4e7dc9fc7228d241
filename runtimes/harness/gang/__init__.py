"""Gang: replicas that run one program together, started and told apart by their leader."""
