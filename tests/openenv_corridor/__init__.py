"""A walk along a corridor to a door: the environment of the tests, laid out as `openenv init` lays one out."""
