{{/* Permissions of dispatch in a project's namespace. */}}
{{- define "windtunnel.launchRights" -}}
- {apiGroups: [jobset.x-k8s.io], resources: [jobsets], verbs: [create, delete, get, list, patch, watch]}
- {apiGroups: [batch], resources: [jobs], verbs: [create, delete, get, list, patch, watch]}
- {apiGroups: [trainer.kubeflow.org], resources: [trainjobs], verbs: [create, delete, get, list]}
- {apiGroups: [kubeflow.org], resources: [mpijobs], verbs: [create, delete, get, list]}
- {apiGroups: [networking.k8s.io], resources: [networkpolicies], verbs: [create, delete, get, list]}
- {apiGroups: [""], resources: [secrets], verbs: [create, delete]}
- {apiGroups: [""], resources: [pods], verbs: [list]}
- {apiGroups: [""], resources: [events], verbs: [list]}
- {apiGroups: [kueue.x-k8s.io], resources: [workloads], verbs: [list]}
{{- end }}

{{/* Permissions of dispatch in the whole cluster: one list call serves all projects. */}}
{{- define "windtunnel.clusterRights" -}}
{{- if contains "{project}" .Values.projects.namespace }}
- {apiGroups: [jobset.x-k8s.io], resources: [jobsets], verbs: [list, watch]}
- {apiGroups: [batch], resources: [jobs], verbs: [list, watch]}
- {apiGroups: [trainer.kubeflow.org], resources: [trainjobs], verbs: [list]}
- {apiGroups: [kubeflow.org], resources: [mpijobs], verbs: [list]}
- {apiGroups: [networking.k8s.io], resources: [networkpolicies], verbs: [list]}
- {apiGroups: [""], resources: [pods, events], verbs: [list]}
- {apiGroups: [kueue.x-k8s.io], resources: [workloads], verbs: [list]}
{{- end }}
{{- if .Values.projects.create }}
- {apiGroups: [""], resources: [namespaces], verbs: [create]}
{{- end }}
{{- end }}
