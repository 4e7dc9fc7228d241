"""Permissions: which executors allow what a submission names, and why others do not. No I/O."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from common.errors import NotAllowed
from core.domain.scheduling.allowed_options import NamedValue, matches, named_values
from core.domain.scheduling.executor_config import ExecutorConfig

#: Most refusals that an error lists.
MOST_LISTED = 20


def refusals(config: ExecutorConfig, values: Iterable[NamedValue]) -> Iterator[str]:
    """Yield a sentence for each value that an executor does not allow, with the setting that decides."""
    for named in values:
        option = named.option
        if option.name in config.ignored:
            continue
        if option.name == "annotations" and (deciding := config.equivalents.get(named.name)) is not None:
            yield f"{option.path}: {named.name} is not taken from annotations; use placement.{deciding} instead."
            continue
        patterns = config.allowed.get(option.name, ())
        if not any(matches(pattern, named) for pattern in patterns):
            setting = f"executors.{config.name}.allowed.{option.name}"
            yield f"{option.path}: {named} is not in {setting} ({', '.join(patterns) or 'empty'})."


def permitting(
    configs: Iterable[ExecutorConfig], placement: Mapping[str, object], gang: Mapping[str, object] | None
) -> list[ExecutorConfig]:
    """Return the executors that allow all that a submission names."""
    values = list(named_values(placement, gang))
    return [config for config in configs if not values or next(refusals(config, values), None) is None]


def require_allowed(
    configs: Sequence[ExecutorConfig], placement: Mapping[str, object], gang: Mapping[str, object] | None
) -> None:
    """Raise NotAllowed, with a sentence for each value and executor, if none of the executors allows a submission."""
    if permitting(configs, placement, gang):
        return
    values = list(named_values(placement, gang))
    sentences = [sentence for config in configs for sentence in refusals(config, values)][:MOST_LISTED]
    if not sentences:  # there is no executor at all, which other checks report
        return
    remedy = "Leave it out, or ask the operator to add it there."
    raise NotAllowed(f"{' '.join(sentences[:4])} {remedy}", errors=sentences)
