{{/* Names and labels. Call with the root, or a dict with `root` and `component`. */}}

{{- define "windtunnel.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 30 | trimSuffix "-" -}}
{{- end }}

{{/* At most 40 characters, so that names with a suffix stay below 63. */}}
{{- define "windtunnel.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains (include "windtunnel.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "windtunnel.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end }}

{{/* Selector labels: they never change between versions, because selectors are immutable. */}}
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

{{/* Name of the installation: a label of every project's namespace and of every object of a launch. */}}
{{- define "windtunnel.installation" -}}
{{- printf "%s-%s" .Release.Namespace (include "windtunnel.fullname" .) | trunc 63 | trimSuffix "-" -}}
{{- end }}

{{- define "windtunnel.namespaceOf" -}}
{{- replace "{project}" .project .root.Values.projects.namespace -}}
{{- end }}

{{/* URL of the cache for clients without consistent hashing of their own. */}}
{{- define "windtunnel.cacheUrl" -}}
{{- if .Values.scs.envoy.enabled -}}
http://{{ include "windtunnel.fullname" . }}-envoy.{{ .Release.Namespace }}.svc:{{ .Values.scs.envoy.port }}
{{- else -}}
http://{{ include "windtunnel.fullname" . }}-scs.{{ .Release.Namespace }}.svc:{{ .Values.scs.port }}
{{- end -}}
{{- end }}

{{/* trafficDistribution of Services that prefer endpoints of the client's zone. */}}
{{- define "windtunnel.trafficDistribution" -}}
{{- $named := semverCompare ">=1.34.0-0" .Capabilities.KubeVersion.Version | ternary "PreferSameZone" "PreferClose" -}}
{{- .Values.scs.trafficDistribution | default $named -}}
{{- end }}
