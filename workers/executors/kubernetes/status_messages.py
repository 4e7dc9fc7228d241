"""Status messages: each fact that a cluster reports of a launch as a sentence for users: the problem and its remedy."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from core.domain.scheduling.launches import Note

#: Messages of pods and of the cluster are cut to this many characters.
LONGEST = 300


class MessageTemplate(NamedTuple):
    """``{part}``: the container; ``{what}``: image, limit, node or resource; ``{message}``: the cluster's message.

    ``lasting``: a retry fails the same way until a person acts.
    """

    text: str
    lasting: bool = False


_IMAGE = "The image {what} of the {part} cannot be pulled ({message}). Check its name, and that the nodes may pull it."
MESSAGES: Mapping[str, MessageTemplate] = {
    # a container that does not start
    "ErrImagePull": MessageTemplate(_IMAGE, lasting=True),
    "ImagePullBackOff": MessageTemplate(_IMAGE, lasting=True),
    "RegistryUnavailable": MessageTemplate(
        "The registry of the {part}'s image {what} does not answer ({message}). The pull is retried."
    ),
    "ErrImageNeverPull": MessageTemplate(
        "The node has no image {what} for the {part}, and pull_policy is Never. Load it there, or change pull_policy.",
        lasting=True,
    ),
    "InvalidImageName": MessageTemplate(
        "{what} is not a valid image name ({part}). Correct the executor's images.", lasting=True
    ),
    "ImageInspectError": MessageTemplate(
        "The image {what} of the {part} is damaged on its node. Have it pulled again.", lasting=True
    ),
    "CreateContainerConfigError": MessageTemplate(
        "The {part} cannot be created from its pod's specification: {message}. Its secret may have been deleted.",
        lasting=True,
    ),
    "CreateContainerError": MessageTemplate("The node cannot create the {part}: {message}.", lasting=True),
    "RunContainerError": MessageTemplate("The node cannot start the {part}: {message}.", lasting=True),
    "CrashLoopBackOff": MessageTemplate("The {part} exits repeatedly: {message}. See its log."),
    # a container that ended
    "OOMKilled": MessageTemplate(
        "The {part} needed more than its {what} of memory and was killed. Ask for more in `resources`."
    ),
    "ContainerCannotRun": MessageTemplate(
        "The {part}'s program could not be started: {message}. Check the image {what}.", lasting=True
    ),
    "StartError": MessageTemplate(
        "The {part}'s program could not be started: {message}. Check the image {what}.", lasting=True
    ),
    # a pod that cannot be scheduled
    "Unschedulable": MessageTemplate(
        "No node has room: {what} ({message}). It starts once one has; ask for less, or add nodes."
    ),
    "SchedulingGated": MessageTemplate(
        "A scheduling gate holds its pods back ({message}). They start once it is removed."
    ),
    "OutOfcpu": MessageTemplate("The node had no CPU left after all. Another node is tried."),
    "OutOfmemory": MessageTemplate("The node had no memory left after all. Another node is tried."),
    "UnexpectedAdmissionError": MessageTemplate("The node refused the pod: {message}. It is retried."),
    # a pod that was ended by the cluster
    "Evicted": MessageTemplate("A pod was evicted from its node ({message}). Its work is done again; nothing is lost."),
    "PreemptionByScheduler": MessageTemplate(
        "A pod was preempted by a pod of higher priority. Its work is done again elsewhere."
    ),
    "DeletionByTaintManager": MessageTemplate(
        "A pod was evicted by a taint of its node. Its work is done again elsewhere."
    ),
    "EvictionByEvictionAPI": MessageTemplate("A pod was evicted from its node, as in a drain. Its work is done again."),
    "DeletionByPodGC": MessageTemplate(
        "A pod was removed with its node, which is gone. Its work is done again elsewhere."
    ),
    "TerminationByKubelet": MessageTemplate("The node ended a pod to save itself ({message}). Its work is done again."),
    "Terminated": MessageTemplate("A pod ended with its node, which shut down. Its work is done again elsewhere."),
    "NodeShutdown": MessageTemplate("A pod ended with its node, which shut down. Its work is done again elsewhere."),
    "PodTaken": MessageTemplate("The cluster took a pod away, so the others failed. The launch starts again."),
    "PodsDeleted": MessageTemplate(
        "Its pods were deleted and cannot be replaced: its namespace may be being deleted. The launch starts again."
    ),
    "NodeLost": MessageTemplate("The node {what} does not answer any more. Its work is done again elsewhere."),
    # events
    "FailedMount": MessageTemplate("A pod waits for a volume: {message}."),
    "FailedAttachVolume": MessageTemplate("A pod waits for a volume: {message}."),
    "FailedCreatePodSandBox": MessageTemplate("The node cannot set up a pod's network: {message}. It is retried."),
    "quota": MessageTemplate(
        "The project's quota in the cluster is used up ({message}). It goes on once there is room, or more quota."
    ),
    "security": MessageTemplate(
        "The namespace's pod security refuses the platform's pods: {message}. See the chart's notes on it.",
        lasting=True,
    ),
    "denied": MessageTemplate(
        "An admission policy of the cluster refuses the platform's pods: {message}. Ask its administrator.",
        lasting=True,
    ),
    "webhook": MessageTemplate(
        "One of the cluster's admission webhooks fails: {message}. It is retried; tell the cluster's administrator."
    ),
    "forbidden": MessageTemplate(
        "The cluster's controllers may not create the platform's pods: {message}.", lasting=True
    ),
    "FailedCreate": MessageTemplate("The cluster could not create a pod: {message}. It is retried."),
    # the whole launch
    "queued": MessageTemplate("The launch waits in Kueue: {message}."),
    "turn": MessageTemplate("The launch waits in Kueue until its turn comes."),
    "closed": MessageTemplate(
        "Kueue does not admit the launch: {message}. Name another queue, or have this one opened."
    ),
    "displaced": MessageTemplate("Kueue evicted the launch ({message}). It goes on once it is admitted again."),
    "suspended": MessageTemplate("The launch is suspended in the cluster. It goes on once a person resumes it."),
    "DeadlineExceeded": MessageTemplate("The launch exceeded its time limit, and the cluster ended it."),
}


def make_note(fact: str, part: str = "", what: str = "", message: str = "", key: str = "") -> Note:
    """Return the note of a fact; notes of one ``key`` and part replace each other."""
    reason = clean(message) or "no reason given"
    text = MESSAGES[fact].text.format(part=part, what=clean(what) or "unknown", message=reason.rstrip("."))
    return Note(key=":".join(filter(None, (key or fact, part))), message=text)


def clean(text: str, longest: int = LONGEST) -> str:
    """Sanitize untrusted text for display: one line, printable, short."""
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return line if len(line) <= longest else line[: longest - 1] + "…"


def scheduling_problems(message: str) -> str:
    """Return the shortages and mismatches that the scheduler's message names."""
    total = re.match(r"0/(\d+) nodes are available", message)
    problems = [
        f"not enough {name}" for name in dict.fromkeys(re.findall(r"Insufficient ([^\s,.]+(?:\.[^\s,.]+)*)", message))
    ]
    problems += [text for pattern, text in _OBSTACLES.items() if re.search(pattern, message)]
    return (", ".join(problems) or "none fits") + (f" on {total[1]} nodes" if total else "")


_OBSTACLES: Mapping[str, str] = {
    r"untolerated taint": "taints that are not tolerated",
    r"didn't match Pod's node affinity|node selector": "no node with the labels that are asked for",
    r"didn't match pod (anti-)?affinity|topology spread": "affinity or topology spread constraints",
    r"were unschedulable": "nodes closed to new pods",
    r"Too many pods": "nodes with as many pods as they take",
    r"cannot allocate all claims|resourceclaim": "no device for a claim",
    r"no nodes available": "no node at all",
}


def creation_failure(message: str) -> str:
    """Return the fact that the message of a failed pod creation reports."""
    return next((fact for fragment, fact in _FAILURES.items() if fragment in message), "FailedCreate")


_FAILURES: Mapping[str, str] = {
    "exceeded quota": "quota",
    "must specify": "quota",  # a memory quota requires that each pod has a memory limit
    "violates PodSecurity": "security",
    "denied the request": "denied",
    "failed calling webhook": "webhook",
    "is forbidden": "forbidden",
}
