"""Every fact that the cluster tells of a launch, as one sentence for people: what happened, and what to do."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from core.domain.launches import Note

#: The words of a pod or of the cluster are shown no longer than this.
LONGEST = 300


class Saying(NamedTuple):
    """``{part}``: the container; ``{what}``: image, limit, node or thing lacking; ``{said}``: the cluster's words.

    ``lasting``: trying again ends the same way, until somebody does something about it.
    """

    words: str
    lasting: bool = False


S = Saying
_IMAGE = "The image {what} of the {part} cannot be pulled ({said}). Check its name, and that the nodes may pull it."
SAYINGS: Mapping[str, Saying] = {
    # a container that does not start
    "ErrImagePull": S(_IMAGE, lasting=True),
    "ImagePullBackOff": S(_IMAGE, lasting=True),
    "RegistryUnavailable": S("The registry of the {part}'s image {what} does not answer ({said}). It is tried again."),
    "ErrImageNeverPull": S(
        "The node has no image {what} for the {part}, and may pull none. Bring it there, or change pull_policy.",
        lasting=True,
    ),
    "InvalidImageName": S("{what} is no name of an image ({part}). Correct the executor's images.", lasting=True),
    "ImageInspectError": S("The image {what} of the {part} is damaged on its node. Have it pulled anew.", lasting=True),
    "CreateContainerConfigError": S(
        "The {part} cannot be made from what its pod says: {said}. Its secret may have been deleted.", lasting=True
    ),
    "CreateContainerError": S("The node cannot make the {part}: {said}.", lasting=True),
    "RunContainerError": S("The node cannot start the {part}: {said}.", lasting=True),
    "CrashLoopBackOff": S("The {part} ends again and again: {said}. Its log says why."),
    # a container that ended
    "OOMKilled": S("The {part} needed more than its {what} of memory and was killed. Ask for more in `resources`."),
    "ContainerCannotRun": S("The {part}'s program could not be started: {said}. Check the image {what}.", lasting=True),
    "StartError": S("The {part}'s program could not be started: {said}. Check the image {what}.", lasting=True),
    # a pod that finds no place
    "Unschedulable": S("No node has room: {what} ({said}). It starts once one has; ask for less, or add nodes."),
    "SchedulingGated": S("Somebody's gate holds its pods back ({said}). They start once it is opened."),
    "OutOfcpu": S("The node had no processor left after all. It is tried on another."),
    "OutOfmemory": S("The node had no memory left after all. It is tried on another."),
    "UnexpectedAdmissionError": S("The node would not take the pod: {said}. It is tried again."),
    # a pod that lost its place
    "Evicted": S("A pod was evicted from its node ({said}). Its work is done again; nothing is lost."),
    "PreemptionByScheduler": S("A pod made room for one of higher priority. Its work is done again elsewhere."),
    "DeletionByTaintManager": S(
        "A pod left a node that takes none like it any more. Its work is done again elsewhere."
    ),
    "EvictionByEvictionAPI": S("A pod was asked off its node, as when nodes are drained. Its work is done again."),
    "DeletionByPodGC": S("A pod was removed with its node, which is gone. Its work is done again elsewhere."),
    "TerminationByKubelet": S("The node ended a pod to save itself ({said}). Its work is done again."),
    "Terminated": S("A pod ended with its node, which shut down. Its work is done again elsewhere."),
    "NodeShutdown": S("A pod ended with its node, which shut down. Its work is done again elsewhere."),
    "PodTaken": S("A pod of it was taken away, and the others failed for it. It begins anew."),
    "PodsDeleted": S("Its pods were deleted and none can follow: its namespace may be on its way out. It begins anew."),
    "NodeLost": S("The node {what} does not answer any more. Its work is done again elsewhere."),
    # events
    "FailedMount": S("A pod waits for a volume: {said}."),
    "FailedAttachVolume": S("A pod waits for a volume: {said}."),
    "FailedCreatePodSandBox": S("The node cannot set up a pod's network: {said}. It is tried again."),
    "quota": S("The project's quota in the cluster is used up ({said}). It goes on once there is room, or more quota."),
    "security": S("The namespace's pod security refuses our pods: {said}. See the chart's notes on it.", lasting=True),
    "denied": S("The cluster's rules refuse our pods: {said}. Whoever runs the cluster can say why.", lasting=True),
    "webhook": S(
        "One of the cluster's admission webhooks fails: {said}. It is tried again; tell who runs the cluster."
    ),
    "forbidden": S("The cluster's controllers may not make our pods: {said}.", lasting=True),
    "FailedCreate": S("The cluster could not make a pod: {said}. It is tried again."),
    # the whole launch
    "queued": S("It waits in the cluster's own queue: {said}."),
    "turn": S("It waits in the cluster's own queue until its turn comes."),
    "closed": S("The cluster's own queue does not let it in: {said}. Name another, or have it opened."),
    "displaced": S("The cluster's own queue took its place away ({said}). It goes on once it is let in again."),
    "suspended": S("It is suspended in the cluster. It goes on once somebody resumes it."),
    "DeadlineExceeded": S("It took longer than it was given, and the cluster ended it."),
}


def note(fact: str, part: str = "", what: str = "", said: str = "", key: str = "") -> Note:
    """Make the sentence of a fact."""
    told = clean(said) or "no reason given"
    words = SAYINGS[fact].words.format(part=part, what=clean(what) or "unknown", said=told.rstrip("."))
    return Note(key=":".join(filter(None, (key or fact, part))), words=words)


def clean(text: str, longest: int = LONGEST) -> str:
    """Make a text that strangers wrote fit to be shown: one line, printable, short."""
    line = " ".join("".join(char if char.isprintable() else " " for char in text).split())
    return line if len(line) <= longest else line[: longest - 1] + "…"


def lacking(message: str) -> str:
    """Read from the scheduler's words what there is too little of, or what does not fit."""
    total = re.match(r"0/(\d+) nodes are available", message)
    facts = [
        f"not enough {name}" for name in dict.fromkeys(re.findall(r"Insufficient ([^\s,.]+(?:\.[^\s,.]+)*)", message))
    ]
    facts += [words for pattern, words in _OBSTACLES.items() if re.search(pattern, message)]
    return (", ".join(facts) or "none fits") + (f" on {total[1]} nodes" if total else "")


_OBSTACLES: Mapping[str, str] = {
    r"untolerated taint": "taints that are not tolerated",
    r"didn't match Pod's node affinity|node selector": "no node with the labels that are asked for",
    r"didn't match pod (anti-)?affinity|topology spread": "rules of who may run beside whom",
    r"were unschedulable": "nodes closed to new pods",
    r"Too many pods": "nodes with as many pods as they take",
    r"cannot allocate all claims|resourceclaim": "no device for a claim",
    r"no nodes available": "no node at all",
}


def of_failure(message: str) -> str:
    """Tell which fact an event of a pod that could not be made is."""
    for fragment, fact in _FAILURES.items():
        if fragment in message:
            return fact
    return "FailedCreate"


_FAILURES: Mapping[str, str] = {
    "exceeded quota": "quota",
    "must specify": "quota",  # a quota on memory wants each pod to say how much
    "violates PodSecurity": "security",
    "denied the request": "denied",
    "failed calling webhook": "webhook",
    "is forbidden": "forbidden",
}
