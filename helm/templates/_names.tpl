{{/* Names and labels. Call with the root, or a dict with `root` and `component`. */}}

{{- define "windtunnel.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 30 | trimSuffix "-" -}}
{{- end }}

{{/* At most 40 characters, so that what is hung behind it stays below 63. */}}
{{- define "windtunnel.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains (include "windtunnel.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "windtunnel.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end }}

{{/* What selects pods never changes between versions: selectors are immutable. */}}
{{- define "windtunnel.selector" -}}
app.kubernetes.io/name: {{ include "windtunnel.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- with .component }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- with .zone }}
windtunnel/zone: {{ . }}
{{- end }}
{{- end }}

{{- define "windtunnel.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{ include "windtunnel.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
{{- end }}

{{- define "windtunnel.meta" -}}
name: {{ include "windtunnel.fullname" .root }}-{{ .name | default .component }}
namespace: {{ .root.Release.Namespace }}
labels: {{- include "windtunnel.labels" . | nindent 2 }}
{{- end }}

{{- define "windtunnel.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{/* Whose objects are whose: every namespace of a project and every object of a launch says it. */}}
{{- define "windtunnel.installation" -}}
{{- printf "%s-%s" .Release.Namespace (include "windtunnel.fullname" .) | trunc 63 | trimSuffix "-" -}}
{{- end }}

{{- define "windtunnel.namespaceOf" -}}
{{- replace "{project}" .project .root.Values.projects.namespace -}}
{{- end }}

{{/* The front of the cache, for those who do not hash by themselves. */}}
{{- define "windtunnel.scsFront" -}}
{{- if .Values.scs.envoy.enabled -}}
http://{{ include "windtunnel.fullname" . }}-envoy.{{ .Release.Namespace }}.svc:{{ .Values.scs.envoy.port }}
{{- else -}}
http://{{ include "windtunnel.fullname" . }}-scs.{{ .Release.Namespace }}.svc:{{ .Values.scs.port }}
{{- end -}}
{{- end }}

{{/* How a Service says: by an endpoint of the own zone, if there is one. */}}
{{- define "windtunnel.nearby" -}}
{{- $named := semverCompare ">=1.34.0-0" .Capabilities.KubeVersion.Version | ternary "PreferSameZone" "PreferClose" -}}
{{- .Values.scs.trafficDistribution | default $named -}}
{{- end }}
