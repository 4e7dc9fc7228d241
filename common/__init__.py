"""Values and pure functions that two or more rooms of the code share, and the errors that all of them raise."""
