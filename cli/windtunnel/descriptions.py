"""Events and results in words, for terminals and notebooks; the text is untrusted, as its parts are."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from windtunnel import figures

if TYPE_CHECKING:
    from windtunnel.records import Event


def running_text(task: int, fraction: float, **_: object) -> str:
    """Return in words how far a program is with its task."""
    return f"task {task} at {fraction:.0%}"


def event_text(event: "Event") -> str:
    """Return in words what an event tells; empty for one that tells nothing, such as bytes of a dataset."""
    members = event.raw
    match event.type:
        case "state":
            reason = f": {members['reason']}" if members.get("reason") else ""
            return f"{members['state']}{reason}"
        case "progress":
            failed = f", {count} not ok" if (count := members.get("failed")) else ""
            rate = f", {figures.number(float(speed))} tasks/s" if (speed := members.get("rate")) else ""
            left = f", {figures.seconds(members['eta'])} left" if members.get("eta") is not None else ""
            now = f", {running_text(**running)}" if (running := members.get("running")) else ""
            return f"{members['done']} of {members['total']} tasks{now}{failed}{rate}{left}"
        case "staging":
            return ": ".join(str(members[key]) for key in ("name", "message") if members.get(key))
        case "launch" if members.get("message"):
            return str(members["message"])
        case "batch" | "model" if members.get("sentence"):
            return str(members["sentence"])
    rest = {key: value for key, value in members.items() if key not in {"number", "type", "at"} and value is not None}
    return ", ".join(f"{key} {value}" for key, value in rest.items())


def result_text(result: Mapping[str, Any]) -> str:
    """Return in words why a result is bad: the error of a task that is not `ok`, else what its metrics say."""
    metrics = result["metrics"]
    if result["status"] != "ok":
        return f"{result['status']}: {result['error']}"
    parts = []
    match metrics.get("outcome"):
        case "collision":
            blame = "at fault" if metrics.get("at_fault") else "not at fault"
            speed = metrics.get("impact_speed")
            parts.append(f"collision {blame}" + (f", impact at {speed:.1f} m/s" if speed is not None else ""))
        case "timeout":
            parts.append("did not arrive in time")
        case "stranded":
            parts.append("stranded at the end of a lane")
        case str(other):
            parts.append(other)
    if metrics.get("red_lights"):
        parts.append(f"ran {int(metrics['red_lights'])} red light{'s' if metrics['red_lights'] > 1 else ''}")
    if (done := metrics.get("route_completion")) is not None and done < 100:
        parts.append(f"{done:.0f} % of the route")
    return ", ".join(parts)
