"""Pod specs of a launch: runner pods (runner, evaluator, model server), a gang's replicas and leader, MPI pods."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from core.domain.scheduling.communications.members import FROM_LABELS, ORDERS, GangMembers, ReplicaPosition
from core.domain.scheduling.launches import Gang, Launch
from datasets.catalogue import datasets
from runtimes import catalogue
from runtimes.images.image_names import image_of
from workers.executors.kubernetes import gang_pods, names
from workers.executors.kubernetes.manifests import containers
from workers.executors.kubernetes.manifests.containers import ContainerTemplate
from workers.executors.kubernetes.objects import INDEX, INSTALLATION, LAUNCH
from workers.executors.kubernetes.options import NETWORKS_ANNOTATION, KubernetesOptions, Share

Object = dict[str, Any]

#: Label that JobSet sets on each pod: the index of its Job among the Jobs of its group.
SLICE = "jobset.sigs.k8s.io/job-index"
#: Label with a pod's part in its launch (runner, replica, lead); network policies select by it.
PART = "windtunnel/part"
#: Size limit of each container's /tmp.
TMP = "1Gi"
#: Resources of a gang's leader, which only starts and supervises the replicas.
LEADER_SHARE = Share(cpu="100m", memory="512Mi")
#: Command prefix of an MPI replica in a user's image: waits for the leader's DNS name, and starts the proxy again while
#: it exits with 5 because the launcher does not listen yet.
WAIT = (
    "sh",
    "-c",
    'until getent hosts "$0" >/dev/null; do sleep 0.1; done; '
    'until "$@"; do c=$?; [ $c = 5 ] || exit $c; sleep 0.1; done',
)
_RESTRICTED = {"type": "RuntimeDefault"}
FILES_VOLUME: Object = {"name": "files", "emptyDir": {}}


@dataclass(frozen=True, slots=True)
class PodSpecBuilder:
    """Builds every pod template of one launch on one cluster, with the labels and metadata of its objects."""

    launch: Launch
    options: KubernetesOptions

    # -- metadata

    @property
    def name(self) -> str:
        """Name of the launch's owner and of its other objects."""
        return names.owner(self.launch.id)

    @property
    def labels(self) -> dict[str, str]:
        """Labels of every object of the launch: the platform finds it by them, a site attributes costs by them."""
        launch = self.launch
        return {
            "app.kubernetes.io/managed-by": "windtunnel",
            INSTALLATION: self.options.installation,
            LAUNCH: names.label(launch.id),
            "windtunnel/simulation": names.label(launch.simulation_id),
            "windtunnel/project": names.label(launch.project),
            "windtunnel/attempt": str(launch.attempt),
            "windtunnel/runtime": names.label(launch.runtime),
            "windtunnel/dataset": names.label(launch.dataset),
        }

    @property
    def annotations(self) -> dict[str, str]:
        """Annotations of pods, secondary networks included."""
        placement = self.launch.placement
        networks = {NETWORKS_ANNOTATION: ",".join(placement.networks)} if placement.networks else {}
        return {**placement.annotations, **networks}

    @property
    def gang(self) -> Gang:
        """The launch's gang. Raise Invalid if it is none, or an impossible one."""
        return gang_pods.gang_of(self.launch)

    @property
    def members(self) -> GangMembers:
        """The gang's members, with the names of their pods."""
        return gang_pods.members_of(self.launch)

    # -- templates

    def runner_pod(self) -> Object:
        """Return the template of a runner pod: three containers that share two volumes."""
        placement, workers, images = self.launch.placement, self.options.workers_per_pod, self.options.images
        half = Share(cpu=_cores(placement.cpu * workers / 2), memory=str(placement.memory * workers // 2))
        simulator = datasets()[self.launch.dataset].simulator
        evaluators, model_servers = containers.EVALUATOR, containers.MODEL_SERVER
        volumes = self._shared_volumes([evaluators, model_servers])
        if self.launch.trusted and self._format.format.packages:
            evaluators, model_servers = map(containers.trusted_template, (evaluators, model_servers))
            volumes.append({"name": containers.TRUSTED_MOUNT.volume, "emptyDir": {}})
        evaluator = self._container(
            evaluators, image_of(simulator, images.prefix, images.tag), self.options.evaluator or half
        )
        model_server = self._container(
            model_servers, self._format_image(), self.options.model_server or half, devices=True
        )
        template = self._template("runner", [self._runner(containers.RUNNER), evaluator, model_server], volumes)
        template["spec"]["topologySpreadConstraints"] = [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": {LAUNCH: names.label(self.launch.id)}},
            }
        ]
        return template

    def replica(self) -> Object:
        """Return the template of a gang's replicas. They hold no token, and address each other by DNS names."""
        gang, members = self.gang, self.members
        if gang.attended:
            main = self._container(containers.REPLICA, self._program_image(), self._share, devices=True)
            leader = _env({"WINDTUNNEL_GANG_LEADER": f"{members.leader}:{ORDERS}"})
            main["env"] = [*self._replica_position(), *leader, self._gang_key()]
            shared = {"name": containers.SHARED_MEMORY.volume, "emptyDir": {"medium": "Memory"}}
            return self._template("replica", [main], [FILES_VOLUME, shared, _tmp_volume(containers.REPLICA)])
        environment = [*self._replica_position(), *_env(members.environment(FROM_LABELS))]
        follow = members.communication.follow
        command = gang.command if follow is None else (*WAIT, members.leader, *follow(members, FROM_LABELS))
        main = self._container(containers.PROGRAM, self._program_image(), self._share, devices=True)
        main |= {"command": list(command), "env": environment}
        return self._template("replica", [main], [_tmp_volume(containers.PROGRAM)])

    def leader(self) -> Object:
        """Return the template of a gang's leader pod: its runner, or the launcher of its program."""
        if self.gang.attended:
            volumes = [FILES_VOLUME, self._token_volume("gang"), _tmp_volume(containers.RUNNER)]
            return self._template("lead", [self._runner(containers.GANG_RUNNER)], volumes)
        members, lead = self.members, self.members.communication.lead
        command = () if lead is None else (*lead(members), *self.gang.command)
        main = self._container(containers.PROGRAM, self._program_image(), LEADER_SHARE)
        main |= {"command": list(command), "env": _env(members.environment(ReplicaPosition()))}
        return self._template("lead", [main], [_tmp_volume(containers.PROGRAM)])

    def mpi_launcher(self, arguments: Sequence[str], variables: Mapping[str, str]) -> Object:
        """Return the template of an MPIJob's launcher."""
        return self._mpi_pod("lead", self._mpi_container(LEADER_SHARE, arguments, variables))

    def mpi_worker(self, arguments: Sequence[str], variables: Mapping[str, str]) -> Object:
        """Return the template of an MPIJob's workers.

        The ssh server of the operator's base image carries a file capability, and the kernel does not start it where
        that capability cannot be had, though the server does not use it; restricted pod security allows this one.
        """
        main = self._mpi_container(self._share, arguments, variables, devices=True)
        main["securityContext"]["capabilities"]["add"] = ["NET_BIND_SERVICE"]
        return self._mpi_pod("replica", main)

    def patch(self) -> Object:
        """Return the metadata and spec fields of a pod that an operator builds from its own template."""
        spec = self._placement(devices=True)
        return {"metadata": self._pod_metadata("replica")} | ({"spec": spec} if spec else {})

    def resources(self, share: Share, *, devices: bool = False) -> Object:
        """Return a container's resources, with the launch's ``devices`` or not.

        Memory is a limit; cpu is only requested, so that idle cores are usable.
        """
        placement = self.launch.placement
        extended = dict(placement.resources) if devices else {}
        container_resources: Object = {
            "requests": {**extended, "cpu": share.cpu, "memory": share.memory},
            "limits": {**extended, "memory": share.memory},
        }
        if devices and placement.claims:
            container_resources["claims"] = [{"name": names.device(name)} for name in placement.claims]
        return container_resources

    # -- parts

    @property
    def _share(self) -> Share:
        """Resources that the launch requests per replica."""
        return Share(cpu=_cores(self.launch.placement.cpu), memory=str(self.launch.placement.memory))

    def _template(self, part: str, pod_containers: Sequence[Object], volumes: Sequence[Object]) -> Object:
        spec: Object = {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": containers.GRACE,
            "securityContext": {
                "runAsNonRoot": True,
                "fsGroup": containers.GROUP,
                "fsGroupChangePolicy": "OnRootMismatch",
                "seccompProfile": dict(_RESTRICTED),
            },
            "containers": list(pod_containers),
            "volumes": list(volumes),
        }
        placement = self.launch.placement
        spec |= self._placement(devices=part != "lead")
        if self.options.runtime_class:
            spec["runtimeClassName"] = self.options.runtime_class
        if placement.priority:
            spec["priorityClassName"] = placement.priority
        if placement.claims and part != "lead":
            spec["resourceClaims"] = [
                {"name": names.device(name), "resourceClaimTemplateName": template}
                for name, template in placement.claims.items()
            ]
        return {"metadata": self._pod_metadata(part), "spec": spec}

    def _placement(self, *, devices: bool) -> Object:
        """Return node selector, tolerations and pull secrets; the operator's labels take precedence over the launch's.

        A pod without devices may run on any of the operator's nodes.
        """
        fields: Object = {}
        if selector := {**(self.launch.placement.node_selector if devices else {}), **self.options.node_selector}:
            fields["nodeSelector"] = selector
        if self.options.tolerations:
            fields["tolerations"] = [dict(toleration) for toleration in self.options.tolerations]
        if self.options.pull_secrets:
            fields["imagePullSecrets"] = [{"name": name} for name in self.options.pull_secrets]
        return fields

    def _pod_metadata(self, part: str) -> Object:
        metadata: Object = {"labels": self.labels | {PART: part}}
        if part != "lead" and (annotations := self.annotations):
            metadata["annotations"] = annotations
        return metadata

    def _runner(self, template: ContainerTemplate) -> Object:
        runner = self._container(template, self.options.images.runner, self.options.runner)
        if self.options.scs.nodes:
            runner["env"] = runner["env"] + _env({"WINDTUNNEL_SCS_NODES": self.options.scs.nodes})
        return runner

    def _container(self, template: ContainerTemplate, image: str, share: Share, *, devices: bool = False) -> Object:
        mounts = [
            {"name": mount.volume, "mountPath": mount.path} | ({"readOnly": True} if mount.read_only else {})
            for mount in template.mounts
        ]
        mounts.append({"name": f"tmp-{template.name}", "mountPath": "/tmp"})
        return {
            "name": template.name,
            "image": image,
            "imagePullPolicy": self.options.pull_policy,
            "command": list(template.command),
            "env": _env(template.environment),
            "resources": self.resources(share, devices=devices),
            "securityContext": {
                "runAsUser": template.user,
                "runAsGroup": template.user,
                "runAsNonRoot": True,
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
                "seccompProfile": dict(_RESTRICTED),
            },
            "volumeMounts": mounts,
        }

    def _mpi_container(
        self, share: Share, arguments: Sequence[str], variables: Mapping[str, str], *, devices: bool = False
    ) -> Object:
        """Return an MPI container. Its image's ENTRYPOINT stays: MPICH's and Intel's wait for names or set paths."""
        main = self._container(containers.MPI, self._program_image(), share, devices=devices)
        del main["command"]
        return main | {"args": list(arguments), "env": _env(variables)}

    def _mpi_pod(self, part: str, main: Object) -> Object:
        template = self._template(part, [main], [_tmp_volume(containers.MPI)])
        del template["spec"]["restartPolicy"]  # MPIJob sets it per replica and warns of a second one
        return template

    def _program_image(self) -> str:
        """Return the image of a gang's program: the user's, or that of the model format's environment."""
        return self.gang.image or self._format_image()

    def _format_image(self) -> str:
        return image_of(self._format.environment.name, self.options.images.prefix, self.options.images.tag)

    @property
    def _format(self) -> catalogue.RuntimeFormat:
        return catalogue.runtime(self.launch.runtime).formats[self.launch.format]

    def _replica_position(self) -> list[Object]:
        """Return the variables of a replica's position, from the pod's labels."""
        position = [_label_variable("WINDTUNNEL_GANG_INDEX", INDEX)]
        # Outside of a JobSet the label does not exist, and with one slice it is not needed.
        sliced = self.gang.slices > 1
        position.append(
            _label_variable("WINDTUNNEL_GANG_SLICE", SLICE)
            if sliced
            else {"name": "WINDTUNNEL_GANG_SLICE", "value": "0"}
        )
        return position

    def _shared_volumes(self, others: Sequence[ContainerTemplate]) -> list[Object]:
        """Return the volumes of a pod with a runner: sockets, input files, tokens, and a /tmp per container."""
        return [
            {"name": "sockets", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
            dict(FILES_VOLUME),
            self._token_volume(),
            *(_tmp_volume(template) for template in (containers.RUNNER, *others)),
        ]

    def _token_volume(self, *others: str) -> Object:
        """Return the volume of a runner's launch.json and token, with other keys of the launch's secret."""
        keys = [{"key": key, "path": key} for key in ("launch.json", "token", *others)]
        sources: list[Object] = [{"secret": {"name": self.name, "items": keys}}]
        if self.options.scs.nodes:
            token = {"audience": self.options.scs.audience, "expirationSeconds": 3600, "path": containers.SCS_TOKEN}
            sources.append({"serviceAccountToken": token})
        return {"name": "token", "projected": {"defaultMode": 0o440, "sources": sources}}

    def _gang_key(self) -> Object:
        """Return the variable with the key by which leader and replicas authenticate each other; it opens no API."""
        reference = {"name": self.name, "key": "gang"}
        return {"name": "WINDTUNNEL_GANG_KEY", "valueFrom": {"secretKeyRef": reference}}


def _tmp_volume(template: ContainerTemplate) -> Object:
    return {"name": f"tmp-{template.name}", "emptyDir": {"sizeLimit": TMP}}


def _label_variable(name: str, label: str) -> Object:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": f"metadata.labels['{label}']"}}}


def _env(values: Mapping[str, str]) -> list[Object]:
    return [{"name": name, "value": value} for name, value in values.items()]


def _cores(cores: float) -> str:
    return f"{max(1, math.ceil(cores * 1000))}m"
