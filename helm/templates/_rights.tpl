{{/* In a project's namespace. */}}
{{- define "windtunnel.launchRights" -}}
- {apiGroups: [jobset.x-k8s.io], resources: [jobsets], verbs: [create, delete, get, list, patch]}
- {apiGroups: [batch], resources: [jobs], verbs: [create, delete, get, list, patch]}
- {apiGroups: [trainer.kubeflow.org], resources: [trainjobs], verbs: [create, delete, get, list, patch]}
- {apiGroups: [kubeflow.org], resources: [mpijobs], verbs: [create, delete, get, list, patch]}
- {apiGroups: [""], resources: [pods], verbs: [get, list]}
- {apiGroups: [""], resources: [pods/log], verbs: [get]}
- {apiGroups: [""], resources: [events], verbs: [list]}
- {apiGroups: [""], resources: [secrets, services], verbs: [create, delete, list]}
- {apiGroups: [networking.k8s.io], resources: [networkpolicies], verbs: [create, delete, list]}
{{- end }}

{{/* In the whole cluster. */}}
{{- define "windtunnel.clusterRights" -}}
- {apiGroups: [""], resources: [nodes], verbs: [list]}
{{- if .Values.projects.create }}
- {apiGroups: [""], resources: [namespaces], verbs: [create, get]}
{{- end }}
{{- end }}
