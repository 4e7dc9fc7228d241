"""Configuration files of a node's programs, as text; pure functions."""

import json
from pathlib import Path

from tests.cluster.network import Network

PAUSE = "windtunnel.local/pause:1"
#: Plugins of containerd that need kernel modules or daemons which a test cluster does not have.
_DISABLED_PLUGINS = [
    *(f"io.containerd.snapshotter.v1.{name}" for name in ("btrfs", "zfs", "devmapper", "aufs")),
    "io.containerd.tracing.processor.v1.otlp",
    "io.containerd.internal.v1.tracing",
]


def containerd_settings(folder: Path, socket: Path) -> str:
    """Return containerd's configuration, with all its data in the node's folder."""
    return f"""version = 2
root = "{folder}/containerd"
state = "/run/containerd"
disabled_plugins = {json.dumps(_DISABLED_PLUGINS)}
[grpc]
  address = "{socket}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{folder}/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{folder}/cni"
"""


def network_settings(network: Network, index: int, folder: Path) -> str:
    """Return the CNI configuration: a bridge, with addresses that are valid in the whole cluster."""
    ranges = [[{"subnet": network.pods_of(index)}]]
    addresses = {"type": "host-local", "dataDir": f"{folder}/addresses", "ranges": ranges}
    bridge = {
        "type": "bridge",
        "bridge": "pods",
        "isGateway": True,
        "hairpinMode": True,
        "ipam": addresses | {"routes": [{"dst": "0.0.0.0/0"}]},
    }
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    return json.dumps({"cniVersion": "1.0.0", "name": "pods", "plugins": [bridge, ports]}, indent=1)


def kubelet_settings(network: Network, folder: Path, socket: Path, authority: Path, cgroup: str) -> str:
    """Return the kubelet's configuration."""
    settings = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": f"unix://{socket}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{cgroup.strip('/')}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "protectKernelDefaults": True,
        "clusterDNS": [network.dns],
        "clusterDomain": "cluster.local",
        "resolvConf": str(folder / "resolv.conf"),
        "podLogsDir": str(folder / "logs"),
        "volumePluginDir": str(folder / "volume-plugins"),
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(authority)},
        },
        "authorization": {"mode": "Webhook"},
        "maxPods": 200,
        # there is no registry from which removed images could be pulled again
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        # otherwise a Secret written while its pod starts (operators' certificates) would be seen a minute later
        "syncFrequency": "2s",
        "nodeStatusUpdateFrequency": "4s",
        "nodeLeaseDurationSeconds": 10,
    }
    return json.dumps(settings, indent=1)


def proxy_settings(network: Network, name: str, kubeconfig: Path) -> str:
    """Return kube-proxy's configuration."""
    settings = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "hostnameOverride": name,
        # requests from outside to a Service are answered through this node
        "clusterCIDR": network.pods,
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        # these are settings of the whole machine, and are left unchanged
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        "bindAddress": "0.0.0.0",
        "metricsBindAddress": "127.0.0.1:10249",
    }
    return json.dumps(settings, indent=1)
