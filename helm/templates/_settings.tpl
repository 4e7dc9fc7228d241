{{/* Settings: what this chart gives, overlaid by what the values say, as variables. */}}

{{/* The setting's variable: leaseTtl -> WINDTUNNEL_LEASE_TTL */}}
{{- define "windtunnel.variable" -}}
WINDTUNNEL_{{ snakecase . | upper }}
{{- end }}

{{/* A value as its variable has it: lists by commas, whole numbers without an exponent. */}}
{{- define "windtunnel.text" -}}
{{- if kindIs "slice" . -}}
{{- join "," . -}}
{{- else if kindIs "float64" . -}}
{{- if eq (floor .) . }}{{ printf "%.0f" . }}{{ else }}{{ toString . }}{{ end -}}
{{- else -}}
{{- toString . -}}
{{- end -}}
{{- end }}

{{/* All settings but the secret ones, as YAML. */}}
{{- define "windtunnel.settings" -}}
{{- $full := include "windtunnel.fullname" . -}}
{{- $names := list }}
{{- range $service := list "api" -}}
{{- range $suffix := list "" (printf ".%s" $.Release.Namespace) (printf ".%s.svc" $.Release.Namespace) (printf ".%s.svc.cluster.local" $.Release.Namespace) -}}
{{- $names = append $names (printf "%s-%s%s" $full $service $suffix) -}}
{{- end -}}
{{- end -}}
{{- range .Values.ingress.hosts }}{{ $names = append $names . }}{{ end -}}
{{- $given := omit .Values.settings "token" "databaseUrl" "redisUrl" "objectStoreAccessKey" "objectStoreSecretKey" -}}
{{- $names = concat $names ($given.names | default list) | uniq -}}
{{- $ours := dict "home" "/var/lib/windtunnel" "host" "0.0.0.0" "port" 5000 "runnerApiHost" "0.0.0.0" "runnerApiPort" 5001
    "executors" "/etc/windtunnel/executors/executors.json" "scsPort" 0 "metricsPort" 9464 -}}
{{- $_ := set $ours "runnerApiUrl" (printf "http://%s-runner-api.%s.svc:%v" $full .Release.Namespace (default 5001 $given.runnerApiPort)) -}}
{{- if .Values.trial -}}
{{- $_ := set $ours "objectStoreUrl" (printf "s3://windtunnel/objects?endpoint=http://%s-minio:%v" $full .Values.bundled.minio.port) -}}
{{- end -}}
{{- if .Values.connectionsSecret -}}
{{- $_ := set $ours "connections" "/etc/windtunnel/connections/connections.json" -}}
{{- end -}}
{{- $all := mergeOverwrite $ours (deepCopy $given) -}}
{{- $_ := set $all "names" $names -}}
{{- toYaml $all -}}
{{- end }}

{{/* One setting as it is in force. Call with a dict of `root` and `name`. */}}
{{- define "windtunnel.setting" -}}
{{- include "windtunnel.text" (get (include "windtunnel.settings" .root | fromYaml) .name) -}}
{{- end }}

{{/* The secret settings given by values, or drawn, as YAML of variables. */}}
{{- define "windtunnel.secrets" -}}
{{- $full := include "windtunnel.fullname" . -}}
{{- $found := dict -}}
{{- $kept := (lookup "v1" "Secret" .Release.Namespace (printf "%s-settings" $full)).data | default dict -}}
{{- range $name := list "token" "databaseUrl" "redisUrl" "objectStoreAccessKey" "objectStoreSecretKey" -}}
{{- with get $.Values.settings $name }}{{ $_ := set $found (include "windtunnel.variable" $name) . }}{{ end -}}
{{- end -}}
{{- if .Values.trial -}}
{{- $password := include "windtunnel.password" . -}}
{{- $b := .Values.bundled -}}
{{- $trial := dict
    "WINDTUNNEL_DATABASE_URL" (printf "postgresql+psycopg://windtunnel:%s@%s-postgresql:%v/windtunnel" $password $full $b.postgresql.port)
    "WINDTUNNEL_REDIS_URL" (printf "redis://:%s@%s-valkey:%v/0" $password $full $b.valkey.port)
    "WINDTUNNEL_OBJECT_STORE_ACCESS_KEY" "windtunnel"
    "WINDTUNNEL_OBJECT_STORE_SECRET_KEY" $password -}}
{{- $found = mergeOverwrite $trial $found -}}
{{- end -}}
{{- $open := has (toString .Values.settings.anonymous) (list "true" "yes") -}}
{{- if not (or $open .Values.existingSecret (hasKey $found "WINDTUNNEL_TOKEN")) -}}
{{- if not (hasKey .Release "drawnToken") -}}
{{- $_ := set .Release "drawnToken" (get $kept "WINDTUNNEL_TOKEN" | b64dec | default (randAlphaNum 40)) -}}
{{- end -}}
{{- $_ := set $found "WINDTUNNEL_TOKEN" .Release.drawnToken -}}
{{- end -}}
{{- toYaml $found -}}
{{- end }}

{{/* The bundled parts' password: given, kept from an earlier version of the release, or drawn once for this rendering. */}}
{{- define "windtunnel.password" -}}
{{- if .Values.bundled.password -}}
{{- .Values.bundled.password -}}
{{- else -}}
{{- if not (hasKey .Release "drawn") -}}
{{- $kept := (lookup "v1" "Secret" .Release.Namespace (printf "%s-bundled" (include "windtunnel.fullname" .))).data | default dict -}}
{{- $_ := set .Release "drawn" (get $kept "PASSWORD" | b64dec | default (randAlphaNum 40)) -}}
{{- end -}}
{{- .Release.drawn -}}
{{- end -}}
{{- end }}

{{/* Refuse a Secret that is not there, or lacks what is given nowhere else. `helm template` cannot look. */}}
{{- define "windtunnel.checkSecret" -}}
{{- if and .Values.existingSecret (lookup "v1" "Namespace" "" .Release.Namespace) -}}
{{- $found := lookup "v1" "Secret" .Release.Namespace .Values.existingSecret -}}
{{- if not $found -}}
{{- fail (printf "existingSecret: there is no Secret %s in %s; make it first" .Values.existingSecret .Release.Namespace) -}}
{{- end -}}
{{- $needed := .Values.trial | ternary (list) (list "databaseUrl" "redisUrl" "objectStoreUrl") -}}
{{- $open := has (toString .Values.settings.anonymous) (list "true" "yes") -}}
{{- range $name := $open | ternary $needed (append $needed "token") -}}
{{- $variable := include "windtunnel.variable" $name -}}
{{- if not (or (get $.Values.settings $name) (hasKey ($found.data | default dict) $variable)) -}}
{{- fail (printf "existingSecret: %s has no %s, and settings.%s is not given" $.Values.existingSecret $variable $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* Refuse what could not work, in words. */}}
{{- define "windtunnel.check" -}}
{{- $s := .Values.settings -}}
{{- include "windtunnel.checkSecret" . -}}
{{- if not (or .Values.trial .Values.existingSecret) -}}
{{- range $name := list "databaseUrl" "redisUrl" -}}
{{- if not (get $s $name) -}}
{{- fail (printf "settings.%s is missing: give it, or a Secret with %s as existingSecret, or try out with trial=true" $name (include "windtunnel.variable" $name)) -}}
{{- end -}}
{{- end -}}
{{- if not $s.objectStoreUrl -}}
{{- fail "settings.objectStoreUrl is missing: s3://bucket/prefix?endpoint=https://host, or try out with trial=true" -}}
{{- end -}}
{{- end -}}
{{- if hasPrefix "sqlite" ($s.databaseUrl | default "") -}}
{{- fail "settings.databaseUrl: several pods share the database, so it is postgresql+psycopg://..., not SQLite" -}}
{{- end -}}
{{- if hasPrefix "file:" ($s.objectStoreUrl | default "") -}}
{{- fail "settings.objectStoreUrl: several pods share the object store, so it is s3://..., not a folder" -}}
{{- end -}}
{{- if not (or .Values.executors.cluster.enabled .Values.executors.others) -}}
{{- fail "executors: name at least one place where launches run, or enable executors.cluster" -}}
{{- end -}}
{{- if and .Values.scs.zones (not .Values.scs.enabled) -}}
{{- fail "scs.zones is given, but scs.enabled is false" -}}
{{- end -}}
{{- end }}
