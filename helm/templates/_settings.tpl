{{/* Settings: the chart's defaults, overridden by values, as environment variables. */}}

{{/* The environment variable of a setting: leaseTtl -> WINDTUNNEL_LEASE_TTL */}}
{{- define "windtunnel.variable" -}}
WINDTUNNEL_{{ snakecase . | upper }}
{{- end }}

{{/* A value as text: lists joined by commas, whole numbers without an exponent. */}}
{{- define "windtunnel.text" -}}
{{- if kindIs "slice" . -}}
{{- join "," . -}}
{{- else if kindIs "float64" . -}}
{{- if eq (floor .) . }}{{ printf "%.0f" . }}{{ else }}{{ toString . }}{{ end -}}
{{- else -}}
{{- toString . -}}
{{- end -}}
{{- end }}

{{/* All settings except secrets, as YAML. */}}
{{- define "windtunnel.settings" -}}
{{- $full := include "windtunnel.fullname" . -}}
{{- $names := list }}
{{- range $service := list "api" -}}
{{- range $suffix := list "" (printf ".%s" $.Release.Namespace) (printf ".%s.svc" $.Release.Namespace) (printf ".%s.svc.cluster.local" $.Release.Namespace) -}}
{{- $names = append $names (printf "%s-%s%s" $full $service $suffix) -}}
{{- end -}}
{{- end -}}
{{- range .Values.ingress.hosts }}{{ $names = append $names . }}{{ end -}}
{{- $values := omit .Values.settings "token" "databaseUrl" "redisUrl" "objectStoreAccessKey" "objectStoreSecretKey" "webhookKey" -}}
{{- $names = concat $names ($values.names | default list) | uniq -}}
{{- $defaults := dict "home" "/var/lib/windtunnel" "host" "0.0.0.0" "port" 5000 "runnerApiHost" "0.0.0.0" "runnerApiPort" 5001
    "executors" "/etc/windtunnel/executors/executors.json" "scsPort" 0 "metricsPort" 9464 "jobsMetricsPort" 9464 -}}
{{- $_ := set $defaults "runnerApiUrl" (printf "http://%s-runner-api.%s.svc:%v" $full .Release.Namespace (default 5001 $values.runnerApiPort)) -}}
{{- if .Values.trial -}}
{{- $_ := set $defaults "objectStoreUrl" (printf "s3://windtunnel/objects?endpoint=http://%s-minio:%v" $full .Values.bundled.minio.port) -}}
{{- end -}}
{{- if .Values.connectionsSecret -}}
{{- $_ := set $defaults "connections" "/etc/windtunnel/connections/connections.json" -}}
{{- end -}}
{{- if .Values.identityProvidersSecret -}}
{{- $_ := set $defaults "identityProviders" "/etc/windtunnel/identity-providers/identity-providers.json" -}}
{{- end -}}
{{- $all := mergeOverwrite $defaults (deepCopy $values) -}}
{{- $_ := set $all "names" $names -}}
{{- toYaml $all -}}
{{- end }}

{{/* The effective value of a setting. Call with a dict of `root` and `name`. */}}
{{- define "windtunnel.setting" -}}
{{- include "windtunnel.text" (get (include "windtunnel.settings" .root | fromYaml) .name) -}}
{{- end }}

{{/* Secret settings, from values or generated, as YAML of variables. */}}
{{- define "windtunnel.secrets" -}}
{{- $full := include "windtunnel.fullname" . -}}
{{- $secrets := dict -}}
{{- $kept := (lookup "v1" "Secret" .Release.Namespace (printf "%s-settings" $full)).data | default dict -}}
{{- range $name := list "token" "databaseUrl" "redisUrl" "objectStoreAccessKey" "objectStoreSecretKey" "webhookKey" -}}
{{- with get $.Values.settings $name }}{{ $_ := set $secrets (include "windtunnel.variable" $name) . }}{{ end -}}
{{- end -}}
{{- if .Values.trial -}}
{{- $password := include "windtunnel.password" . -}}
{{- $b := .Values.bundled -}}
{{- $trial := dict
    "WINDTUNNEL_DATABASE_URL" (printf "postgresql+psycopg://windtunnel:%s@%s-postgresql:%v/windtunnel" $password $full $b.postgresql.port)
    "WINDTUNNEL_REDIS_URL" (printf "redis://:%s@%s-valkey:%v/0" $password $full $b.valkey.port)
    "WINDTUNNEL_OBJECT_STORE_ACCESS_KEY" "windtunnel"
    "WINDTUNNEL_OBJECT_STORE_SECRET_KEY" $password -}}
{{- $secrets = mergeOverwrite $trial $secrets -}}
{{- end -}}
{{- $open := has (toString .Values.settings.anonymous) (list "true" "yes") -}}
{{- if not (or $open .Values.existingSecret (hasKey $secrets "WINDTUNNEL_TOKEN")) -}}
{{- if not (hasKey .Release "generatedToken") -}}
{{- $_ := set .Release "generatedToken" (get $kept "WINDTUNNEL_TOKEN" | b64dec | default (randAlphaNum 40)) -}}
{{- end -}}
{{- $_ := set $secrets "WINDTUNNEL_TOKEN" .Release.generatedToken -}}
{{- end -}}
{{- /* Secrets of webhooks are made of it by all pods, which share no folder. */}}
{{- if not (or .Values.existingSecret (hasKey $secrets "WINDTUNNEL_WEBHOOK_KEY")) -}}
{{- if not (hasKey .Release "generatedWebhookKey") -}}
{{- $_ := set .Release "generatedWebhookKey" (get $kept "WINDTUNNEL_WEBHOOK_KEY" | b64dec | default (randAlphaNum 64)) -}}
{{- end -}}
{{- $_ := set $secrets "WINDTUNNEL_WEBHOOK_KEY" .Release.generatedWebhookKey -}}
{{- end -}}
{{- toYaml $secrets -}}
{{- end }}

{{/* Password of the bundled components: from values, from the existing Secret, or generated once per rendering. */}}
{{- define "windtunnel.password" -}}
{{- if .Values.bundled.password -}}
{{- .Values.bundled.password -}}
{{- else -}}
{{- if not (hasKey .Release "generatedPassword") -}}
{{- $kept := (lookup "v1" "Secret" .Release.Namespace (printf "%s-bundled" (include "windtunnel.fullname" .))).data | default dict -}}
{{- $_ := set .Release "generatedPassword" (get $kept "PASSWORD" | b64dec | default (randAlphaNum 40)) -}}
{{- end -}}
{{- .Release.generatedPassword -}}
{{- end -}}
{{- end }}

{{/* Reject a missing or incomplete existingSecret. `helm template` cannot look it up. */}}
{{- define "windtunnel.checkSecret" -}}
{{- if and .Values.existingSecret (lookup "v1" "Namespace" "" .Release.Namespace) -}}
{{- $secrets := lookup "v1" "Secret" .Release.Namespace .Values.existingSecret -}}
{{- if not $secrets -}}
{{- fail (printf "existingSecret: Secret %s does not exist in namespace %s; create it first" .Values.existingSecret .Release.Namespace) -}}
{{- end -}}
{{- $needed := .Values.trial | ternary (list) (list "databaseUrl" "redisUrl" "objectStoreUrl") -}}
{{- $open := has (toString .Values.settings.anonymous) (list "true" "yes") -}}
{{- range $name := $open | ternary $needed (append $needed "token") -}}
{{- $variable := include "windtunnel.variable" $name -}}
{{- if not (or (get $.Values.settings $name) (hasKey ($secrets.data | default dict) $variable)) -}}
{{- fail (printf "existingSecret: Secret %s has no key %s, and settings.%s is not set" $.Values.existingSecret $variable $name) -}}
{{- end -}}
{{- end -}}
{{- if not (or .Values.settings.webhookKey (hasKey ($secrets.data | default dict) "WINDTUNNEL_WEBHOOK_KEY")) -}}
{{- fail (printf "existingSecret: Secret %s has no key WINDTUNNEL_WEBHOOK_KEY, and settings.webhookKey is not set: the pods share no folder, and would sign webhooks with a key each. Add one, such as of `openssl rand -hex 32`" .Values.existingSecret) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* Reject values that cannot work. */}}
{{- define "windtunnel.check" -}}
{{- $s := .Values.settings -}}
{{- include "windtunnel.checkSecret" . -}}
{{- if not (or .Values.trial .Values.existingSecret) -}}
{{- range $name := list "databaseUrl" "redisUrl" -}}
{{- if not (get $s $name) -}}
{{- fail (printf "settings.%s is missing: set it, or set existingSecret to a Secret with the key %s, or install a trial with trial=true" $name (include "windtunnel.variable" $name)) -}}
{{- end -}}
{{- end -}}
{{- if not $s.objectStoreUrl -}}
{{- fail "settings.objectStoreUrl is missing: s3://bucket/prefix?endpoint=https://host, or install a trial with trial=true" -}}
{{- end -}}
{{- end -}}
{{- if hasPrefix "sqlite" ($s.databaseUrl | default "") -}}
{{- fail "settings.databaseUrl: several pods share the database; use postgresql+psycopg://... instead of SQLite" -}}
{{- end -}}
{{- if hasPrefix "file:" ($s.objectStoreUrl | default "") -}}
{{- fail "settings.objectStoreUrl: several pods share the object store; use s3://... instead of a folder" -}}
{{- end -}}
{{- if not (or .Values.executors.cluster.enabled .Values.executors.others) -}}
{{- fail "executors: enable executors.cluster, or add at least one executor to executors.others" -}}
{{- end -}}
{{- if and .Values.scs.zones (not .Values.scs.enabled) -}}
{{- fail "scs.zones is set, but scs.enabled is false" -}}
{{- end -}}
{{- end }}
