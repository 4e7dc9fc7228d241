"""Pod templates of a launch: runner pods (runner, evaluator, model server), a gang's replicas, and its leader."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from core.domain.launches import Launch
from datasets.catalogue import datasets
from runtimes import catalogue
from runtimes.images.names import image_of
from workers.executors.kubernetes import gangs, names
from workers.executors.kubernetes.manifests import containers as table
from workers.executors.kubernetes.options import KubernetesOptions, Share

Object = dict[str, Any]

#: What an Indexed Job and JobSet write on each pod: its number among its own, and that of its group.
INDEX = "batch.kubernetes.io/job-completion-index"
SLICE = "jobset.sigs.k8s.io/job-index"
#: Which part of a gang a pod is; policies tell them apart by it.
PART = "windtunnel/part"
TMP = "1Gi"
#: What leading a gang takes.
LIGHT = Share(cpu="100m", memory="512Mi")
#: How the pods of a gang are led, and follow, where our own harness is in the image.
GANG = ("python", "-m", "runtimes.harness.gang.replica")
LEAD, FOLLOW = (*GANG, "--tasks", f"{table.RUN}/posts/gang.sock", "lead"), (*GANG, "follow")
#: The same in an image that is not ours, for what ends with 5 while nobody listens yet.
WAIT = (
    "sh",
    "-c",
    'until getent hosts "$0" >/dev/null; do sleep 0.1; done; '
    'until "$@"; do c=$?; [ $c = 5 ] || exit $c; sleep 0.1; done',
)


def labels(launch: Launch, options: KubernetesOptions) -> dict[str, str]:
    """Return what every object of a launch carries: to be found again, and to be billed."""
    return {
        "app.kubernetes.io/managed-by": "windtunnel",
        "windtunnel/installation": options.installation,
        "windtunnel/launch": names.label(launch.id),
        "windtunnel/simulation": names.label(launch.simulation_id),
        "windtunnel/project": names.label(launch.project),
        "windtunnel/attempt": str(launch.attempt),
        "windtunnel/runtime": names.label(launch.runtime),
        "windtunnel/dataset": names.label(launch.dataset),
    }


def runner_pod(launch: Launch, options: KubernetesOptions) -> Object:
    """Return the template of a pod that plays: its three containers share two folders and nothing else."""
    placement = launch.placement
    half = Share(
        cpu=_cores(placement.cpu * options.workers_per_pod / 2),
        memory=str(placement.memory * options.workers_per_pod // 2),
    )
    runtime = catalogue.runtime(launch.runtime)
    model_server = runtime.formats[launch.format].environment.name
    evaluator = datasets()[launch.dataset].simulator
    return _template(
        launch,
        options,
        part="runner",
        containers=[
            _runner(launch, options, table.RUNNER),
            _container(
                table.EVALUATOR,
                image_of(evaluator, options.images.prefix, options.images.tag),
                options,
                options.evaluator or half,
            ),
            _container(
                table.MODEL_SERVER,
                image_of(model_server, options.images.prefix, options.images.tag),
                options,
                options.model_server or half,
                launch,
            ),
        ],
        volumes=_shared(launch, options, [table.EVALUATOR, table.MODEL_SERVER]),
    )


def replica(launch: Launch, options: KubernetesOptions) -> Object:
    """Return the template of a gang's replicas. They hold no token, and know one another by name only."""
    gang = gangs.gang_of(launch)
    share = Share(cpu=_cores(launch.placement.cpu), memory=str(launch.placement.memory))
    command_tail = gangs.proxy(launch, gangs.FROM_LABELS) if gang.communication == "mpi" else gang.command
    if not gang.image:
        command, key = (*FOLLOW, *command_tail), _key(launch)
    else:
        command, key = (*WAIT, gangs.leader(launch), *command_tail) if gang.communication == "mpi" else command_tail, []
    main = _container(table.PROGRAM, _image(launch, options), options, share, launch) | {
        "command": list(command),
        "env": environment(launch, slices=gang.slices > 1) + key,
    }
    return _template(launch, options, part="replica", containers=[main], volumes=[_tmp(table.PROGRAM)])


def lead(launch: Launch, options: KubernetesOptions) -> Object:
    """Return the template of the pod that leads a gang: it has the others run a command, and knows how that ended."""
    gang = gangs.gang_of(launch)
    command_tail = gangs.mpiexec(launch) if gang.communication == "mpi" else ()
    command, key = (command_tail, []) if gang.image else ((*LEAD, *command_tail), _key(launch))
    part = table.PROGRAM if gang.image else table.LEADER
    main = _container(part, _image(launch, options), options, LIGHT) | {
        "command": list(command),
        "env": _env(gangs.environment(launch, gangs.ReplicaPosition())) + key,
    }
    if gang.image:
        return _template(launch, options, part="lead", containers=[main], volumes=[_tmp(part)])
    containers = [_runner(launch, options, table.GANG_RUNNER), main]
    return _template(launch, options, part="lead", containers=containers, volumes=_shared(launch, options, [part]))


def operated(
    launch: Launch, options: KubernetesOptions, *, part: str, arguments: Sequence[str], variables: Mapping[str, str]
) -> Object:
    """Return the template of a pod of the MPI operator's.

    What its image begins with (ENTRYPOINT) stays: those of MPICH and Intel wait for names there, or say where mpirun
    is. The ssh server of the operator's base has a capability in its file, and does not start where that may not be
    had, though it makes no use of it; restricted pod security leaves that one.
    """
    image, worker = _image(launch, options), part == "replica"
    share = Share(cpu=_cores(launch.placement.cpu), memory=str(launch.placement.memory))
    main = _container(table.MPI, image, options, *((share, launch) if worker else (LIGHT,)))
    del main["command"]
    main |= {"args": list(arguments), "env": _env(variables)}
    if worker:
        main["securityContext"]["capabilities"]["add"] = ["NET_BIND_SERVICE"]
    template = _template(launch, options, part=part, containers=[main], volumes=[_tmp(table.MPI)])
    del template["spec"]["restartPolicy"]  # it is the replica's own, and said twice is warned of
    return template


def environment(launch: Launch, *, slices: bool) -> list[Object]:
    """Return a replica's variables; where it stands, the pod itself is asked."""
    places = [_field("WINDTUNNEL_GANG_INDEX", INDEX)]
    # Without JobSet, or with one group, there is no such label to ask for, or no need to.
    places.append(_field("WINDTUNNEL_GANG_SLICE", SLICE) if slices else {"name": "WINDTUNNEL_GANG_SLICE", "value": "0"})
    return places + _env(gangs.environment(launch, gangs.FROM_LABELS))


def resources(share: Share, launch: Launch | None = None) -> Object:
    """Return what a container is given. Memory is a limit; processor time is only asked for, idle cores are for all."""
    placement = launch.placement if launch is not None else None
    extended = dict(placement.resources) if placement is not None else {}
    container_resources: Object = {
        "requests": {"cpu": share.cpu, "memory": share.memory, **extended},
        "limits": {"memory": share.memory, **extended},
    }
    if placement is not None and placement.claims:
        container_resources["claims"] = [{"name": names.device(name)} for name in placement.claims]
    return container_resources


def annotations(launch: Launch) -> dict[str, str]:
    """Return what is written on the pods for others to read, secondary networks among it."""
    placement = launch.placement
    networks = {"k8s.v1.cni.cncf.io/networks": ",".join(placement.networks)} if placement.networks else {}
    return {**placement.annotations, **networks}


def _template(
    launch: Launch, options: KubernetesOptions, *, part: str, containers: Sequence[Object], volumes: Sequence[Object]
) -> Object:
    placement = launch.placement
    devices = part != "lead"
    spec: Object = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": table.GRACE,
        "securityContext": {
            "runAsNonRoot": True,
            "fsGroup": table.GROUP,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": list(containers),
        "volumes": list(volumes),
    }
    if selector := {**options.node_selector, **(placement.node_selector if devices else {})}:
        spec["nodeSelector"] = selector
    if options.tolerations:
        spec["tolerations"] = [dict(one) for one in options.tolerations]
    if options.runtime_class:
        spec["runtimeClassName"] = options.runtime_class
    if placement.priority:
        spec["priorityClassName"] = placement.priority
    if options.pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in options.pull_secrets]
    if placement.claims and devices:
        spec["resourceClaims"] = [
            {"name": names.device(name), "resourceClaimTemplateName": template}
            for name, template in placement.claims.items()
        ]
    if part == "runner":
        spec["topologySpreadConstraints"] = [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": {"windtunnel/launch": names.label(launch.id)}},
            }
        ]
    metadata: Object = {"labels": labels(launch, options) | {PART: part}}
    if devices and (written := annotations(launch)):
        metadata["annotations"] = written
    return {"metadata": metadata, "spec": spec}


def _runner(launch: Launch, options: KubernetesOptions, part: table.ContainerTemplate) -> Object:
    runner = _container(part, options.images.runner, options, options.runner)
    if options.scs.nodes:
        runner["env"] = runner["env"] + _env({"WINDTUNNEL_SCS_NODES": options.scs.nodes})
    return runner


def _image(launch: Launch, options: KubernetesOptions) -> str:
    """Return what a gang's program runs in: an image of its own, or that of its format's environment."""
    gang = gangs.gang_of(launch)
    if gang.image:
        return gang.image
    environment = catalogue.runtime(launch.runtime).formats[launch.format].environment
    return image_of(environment, options.images.prefix, options.images.tag)


def _container(
    part: table.ContainerTemplate, image: str, options: KubernetesOptions, share: Share, launch: Launch | None = None
) -> Object:
    mounts = [
        {"name": mount.volume, "mountPath": mount.path} | ({"readOnly": True} if mount.read_only else {})
        for mount in part.mounts
    ]
    mounts.append({"name": f"tmp-{part.name}", "mountPath": "/tmp"})
    return {
        "name": part.name,
        "image": image,
        "imagePullPolicy": options.pull_policy,
        "command": list(part.command),
        "env": _env(part.environment),
        "resources": resources(share, launch),
        "securityContext": {
            "runAsUser": part.user,
            "runAsGroup": part.user,
            "runAsNonRoot": True,
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "volumeMounts": mounts,
    }


def _shared(launch: Launch, options: KubernetesOptions, others: Sequence[table.ContainerTemplate]) -> list[Object]:
    keys = [{"key": key, "path": key} for key in ("launch.json", "token")]
    sources: list[Object] = [{"secret": {"name": names.owner(launch.id), "items": keys}}]
    if options.scs.nodes:
        token = {"audience": options.scs.audience, "expirationSeconds": 3600, "path": table.SCS_TOKEN}
        sources.append({"serviceAccountToken": token})
    return [
        {"name": "posts", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
        {"name": "files", "emptyDir": {}},
        {"name": "token", "projected": {"defaultMode": 0o440, "sources": sources}},
        *(_tmp(part) for part in (table.RUNNER, *others)),
    ]


def _tmp(part: table.ContainerTemplate) -> Object:
    return {"name": f"tmp-{part.name}", "emptyDir": {"sizeLimit": TMP}}


def _key(launch: Launch) -> list[Object]:
    """What the leader and the replicas of a gang know each other by; it opens nothing else."""
    reference = {"name": names.owner(launch.id), "key": "gang"}
    return [{"name": "WINDTUNNEL_GANG_KEY", "valueFrom": {"secretKeyRef": reference}}]


def _field(name: str, label: str) -> Object:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{label}']"}}}


def _env(values: Mapping[str, str]) -> list[Object]:
    return [{"name": name, "value": value} for name, value in values.items()]


def _cores(cores: float) -> str:
    return f"{max(1, math.ceil(cores * 1000))}m"
