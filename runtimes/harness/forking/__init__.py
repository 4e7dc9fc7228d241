"""A process for each scenario, forked from a zygote that runs no code of users: of models, and of plants."""
