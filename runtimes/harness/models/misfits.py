"""Misfits: why a model cannot be played, or an answer of it is no action."""


class Misfit(Exception):
    """The model does not fit the dataset or the runtime; the text is for the model's author."""


class Unreadable(Misfit):
    """The library cannot read the model's bytes: they are of another version, damaged, or only a part."""


class NoAction(Exception):
    """The model's answer is not a valid action."""
