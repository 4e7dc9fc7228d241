{{/* The executors: content of executors.json, which WINDTUNNEL_EXECUTORS names. */}}
{{- define "windtunnel.executors" -}}
{{- $all := list -}}
{{- $c := .Values.executors.cluster -}}
{{- if $c.enabled -}}
{{- $options := dict
    "installation" (include "windtunnel.installation" .)
    "namespace" .Values.projects.namespace
    "create_namespaces" .Values.projects.create
    "runner_api_url" (include "windtunnel.setting" (dict "root" . "name" "runnerApiUrl"))
    "images" (dict "runner" (include "windtunnel.image" .) "prefix" .Values.environments.prefix "tag" .Values.environments.tag)
    "pull_policy" .Values.image.pullPolicy
    "pull_secrets" .Values.image.pullSecrets
    "dns" .Values.network.dns
    "dns_ports" .Values.network.dnsPorts -}}
{{- if .Values.scs.enabled -}}
{{- $_ := set $options "scs" (dict "nodes" (include "windtunnel.cacheUrl" .) "audience" .Values.scs.audience) -}}
{{- end -}}
{{- $all = append $all (dict "name" $c.name "kind" "kubernetes" "workers" $c.workers "max_workers" $c.maxWorkers "grace" $c.grace "allowed" ($c.allowed | default dict) "options" (mergeOverwrite $options (deepCopy $c.options))) -}}
{{- end -}}
{{- dict "executors" (concat $all .Values.executors.others) | toPrettyJson -}}
{{- end }}
