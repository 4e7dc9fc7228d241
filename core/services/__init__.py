"""Services: the use cases, each with its transactions; `platform` builds them for the composition roots."""
