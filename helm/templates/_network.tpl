{{/* Parts of NetworkPolicies. */}}

{{/* Our own pods of some components, seen from any namespace. Call with root and components. */}}
{{- define "windtunnel.oursFrom" -}}
- namespaceSelector:
    matchLabels: {kubernetes.io/metadata.name: {{ .root.Release.Namespace }}}
  podSelector:
    matchLabels: {{- include "windtunnel.selector" (dict "root" .root) | nindent 6 }}
    matchExpressions:
      - {key: app.kubernetes.io/component, operator: In, values: {{ toJson .components }}}
{{- end }}

{{/* Pods in the namespaces of this installation's projects. */}}
{{- define "windtunnel.tenants" -}}
- namespaceSelector:
    matchLabels: {windtunnel/installation: {{ include "windtunnel.installation" . }}}
{{- end }}

{{- define "windtunnel.toNames" -}}
- to: {{- toYaml .Values.network.dns | nindent 4 }}
  ports:
    {{- range .Values.network.dnsPorts }}
    - {protocol: UDP, port: {{ . }}}
    - {protocol: TCP, port: {{ . }}}
    {{- end }}
{{- end }}

{{/* The cache: through Envoy where there is one, for a node is then nobody else's business. */}}
{{- define "windtunnel.toCache" -}}
{{- $front := .Values.scs.envoy.enabled | ternary "envoy" "scs" -}}
- to: {{- include "windtunnel.oursFrom" (dict "root" . "components" (list $front)) | nindent 4 }}
  ports: [{protocol: TCP, port: {{ .Values.scs.envoy.enabled | ternary .Values.scs.envoy.port .Values.scs.port }}}]
{{- end }}

{{- define "windtunnel.toApiServer" -}}
- to: {{- toYaml .Values.network.apiServer | nindent 4 }}
  ports:
    {{- range .Values.network.apiServerPorts }}
    - {protocol: TCP, port: {{ . }}}
    {{- end }}
{{- end }}

{{/* PostgreSQL, Redis and S3: the bundled ones, or wherever the values say they may lie. */}}
{{- define "windtunnel.toStores" -}}
{{- if .Values.trial }}
{{- range $part := list "postgresql" "valkey" "minio" }}
- to: {{- include "windtunnel.oursFrom" (dict "root" $ "components" (list $part)) | nindent 4 }}
  ports: [{protocol: TCP, port: {{ get (get $.Values.bundled $part) "port" }}}]
{{- end }}
{{- end }}
- to: {{- toYaml .Values.network.stores | nindent 4 }}
{{- end }}
