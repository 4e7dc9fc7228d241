{{/* Parts of NetworkPolicies. */}}

{{/* Peers: pods of the platform's components, from any namespace. Call with root and components. */}}
{{- define "windtunnel.platformPeers" -}}
- namespaceSelector:
    matchLabels: {kubernetes.io/metadata.name: {{ .root.Release.Namespace }}}
  podSelector:
    matchLabels: {{- include "windtunnel.selector" (dict "root" .root) | nindent 6 }}
    matchExpressions:
      - {key: app.kubernetes.io/component, operator: In, values: {{ toJson .components }}}
{{- end }}

{{/* Peers: pods in the namespaces of this installation's projects. */}}
{{- define "windtunnel.projectPeers" -}}
- namespaceSelector:
    matchLabels: {windtunnel/installation: {{ include "windtunnel.installation" . }}}
{{- end }}

{{- define "windtunnel.toDns" -}}
- to: {{- toYaml .Values.network.dns | nindent 4 }}
  ports:
    {{- range .Values.network.dnsPorts }}
    - {protocol: UDP, port: {{ . }}}
    - {protocol: TCP, port: {{ . }}}
    {{- end }}
{{- end }}

{{/* Egress to the cache: to Envoy where it is enabled, since only Envoy may then reach cache nodes. */}}
{{- define "windtunnel.toCache" -}}
{{- $front := .Values.scs.envoy.enabled | ternary "envoy" "scs" -}}
- to: {{- include "windtunnel.platformPeers" (dict "root" . "components" (list $front)) | nindent 4 }}
  ports: [{protocol: TCP, port: {{ .Values.scs.envoy.enabled | ternary .Values.scs.envoy.port .Values.scs.port }}}]
{{- end }}

{{- define "windtunnel.toApiServer" -}}
- to: {{- toYaml .Values.network.apiServer | nindent 4 }}
  ports:
    {{- range .Values.network.apiServerPorts }}
    - {protocol: TCP, port: {{ . }}}
    {{- end }}
{{- end }}

{{/* Egress to PostgreSQL, Redis and S3: the bundled ones, and the peers of network.stores. */}}
{{- define "windtunnel.toStores" -}}
{{- if .Values.trial }}
{{- range $part := list "postgresql" "valkey" "minio" }}
- to: {{- include "windtunnel.platformPeers" (dict "root" $ "components" (list $part)) | nindent 4 }}
  ports: [{protocol: TCP, port: {{ get (get $.Values.bundled $part) "port" }}}]
{{- end }}
{{- end }}
- to: {{- toYaml .Values.network.stores | nindent 4 }}
{{- end }}
