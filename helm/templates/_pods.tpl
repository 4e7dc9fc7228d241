{{/* Templates that pods share. */}}

{{/* A container's security context, as restricted pod security requires. */}}
{{- define "windtunnel.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* A pod's security context; call with a dict of `user`. */}}
{{- define "windtunnel.podSecurity" -}}
runAsNonRoot: true
runAsUser: {{ .user }}
runAsGroup: {{ .user }}
fsGroup: {{ .user }}
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* Spread pods over zones and nodes where possible. Call with root, component and optionally zone. */}}
{{- define "windtunnel.spread" -}}
{{- range $key := list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
- maxSkew: 1
  topologyKey: {{ $key }}
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels: {{- include "windtunnel.selector" $ | nindent 6 }}
{{- end }}
{{- end }}

{{/* Node selector and tolerations. Call with the component's values. */}}
{{- define "windtunnel.scheduling" -}}
{{- with .nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "windtunnel.pullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . }}
{{- end }}
{{- end }}
{{- end }}

{{/* Environment of a role: its settings. */}}
{{- define "windtunnel.environment" -}}
envFrom:
  - configMapRef: {name: {{ include "windtunnel.fullname" . }}-settings}
  - secretRef: {name: {{ include "windtunnel.fullname" . }}-settings}
{{- with .Values.existingSecret }}
  - secretRef: {name: {{ . }}}
{{- end }}
{{- end }}

{{/* Probe of a role without HTTP: its loop ran within the last minute. */}}
{{- define "windtunnel.livenessProbe" -}}
exec: {command: [{{ .root.Values.image.python | quote }}, -m, workers.liveness, {{ include "windtunnel.setting" (dict "root" .root "name" "home") }}/run/{{ .role }}.beat, "60"]}
{{- end }}

{{/*
A role's Deployment, service account and disruption budget. Call with a dict: root, component, role (of `python -m server`),
values, port (name of a setting, or none), probe (path, or none), metrics (port, or none), account (whether it calls the API
server), env, mounts and volumes (YAML, or none).
*/}}
{{- define "windtunnel.role" -}}
{{- $v := .values -}}
{{- $full := include "windtunnel.fullname" .root -}}
apiVersion: v1
kind: ServiceAccount
metadata: {{- include "windtunnel.meta" . | nindent 2 }}
automountServiceAccountToken: false
---
apiVersion: apps/v1
kind: Deployment
metadata: {{- include "windtunnel.meta" . | nindent 2 }}
spec:
  {{- if not ($v.autoscaling | default dict).enabled }}
  replicas: {{ $v.replicas }}
  {{- end }}
  revisionHistoryLimit: 3
  selector:
    matchLabels: {{- include "windtunnel.selector" . | nindent 6 }}
  strategy:
    rollingUpdate: {maxUnavailable: 0, maxSurge: 1}
  template:
    metadata:
      labels: {{- include "windtunnel.labels" . | nindent 8 }}
      annotations:
        windtunnel/settings: {{ printf "%s%s%s" (include "windtunnel.settings" .root) (include "windtunnel.secrets" .root) (include "windtunnel.executors" .root) | sha256sum | trunc 16 }}
        {{- with $v.annotations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    spec:
      serviceAccountName: {{ $full }}-{{ .component }}
      automountServiceAccountToken: {{ .account | default false }}
      enableServiceLinks: false
      terminationGracePeriodSeconds: 60
      securityContext: {{- include "windtunnel.podSecurity" (dict "user" 10001) | nindent 8 }}
      {{- include "windtunnel.pullSecrets" .root | nindent 6 }}
      topologySpreadConstraints: {{- include "windtunnel.spread" . | nindent 8 }}
      {{- include "windtunnel.scheduling" $v | nindent 6 }}
      {{- if .root.Values.trial }}
      initContainers:
        # A trial's database starts at the same time: retry until it answers; the first pod migrates the schema.
        - name: migrate
          image: {{ include "windtunnel.image" .root }}
          imagePullPolicy: {{ .root.Values.image.pullPolicy }}
          workingDir: {{ .root.Values.image.workingDir }}
          command:
            - {{ .root.Values.image.python }}
            - -c
            - |
              import subprocess, sys, time
              while subprocess.run([sys.executable, "-m", "server", "migrate"]).returncode:
                  time.sleep(1)
          {{- include "windtunnel.environment" .root | nindent 10 }}
          securityContext: {{- include "windtunnel.containerSecurity" . | nindent 12 }}
          resources: {requests: {cpu: 50m, memory: 64Mi}, limits: {memory: 512Mi}}
          volumeMounts:
            - {name: home, mountPath: {{ include "windtunnel.setting" (dict "root" .root "name" "home") }}}
            - {name: tmp, mountPath: /tmp}
      {{- end }}
      containers:
        - name: {{ .component }}
          image: {{ include "windtunnel.image" .root }}
          imagePullPolicy: {{ .root.Values.image.pullPolicy }}
          workingDir: {{ .root.Values.image.workingDir }}
          command: [{{ .root.Values.image.python | quote }}, -m, server, {{ .role }}]
          {{- include "windtunnel.environment" .root | nindent 10 }}
          env:
            # Probes and Prometheus send requests to the pod's address, so it is among the accepted host names.
            - name: POD_IP
              valueFrom: {fieldRef: {fieldPath: status.podIP}}
            - name: WINDTUNNEL_NAMES
              value: {{ printf "%s,$(POD_IP),[$(POD_IP)]" (include "windtunnel.setting" (dict "root" .root "name" "names")) }}
            {{- with .env }}
            {{- . | nindent 12 }}
            {{- end }}
          {{- if .port }}
          ports:
            - {name: http, containerPort: {{ include "windtunnel.setting" (dict "root" .root "name" .port) }}}
          startupProbe:
            httpGet: {path: /healthz, port: http}
            periodSeconds: 2
            failureThreshold: 60
          readinessProbe:
            httpGet: {path: {{ .probe }}, port: http}
            periodSeconds: 5
            timeoutSeconds: 5
          livenessProbe:
            httpGet: {path: /healthz, port: http}
            periodSeconds: 15
            timeoutSeconds: 5
            failureThreshold: 4
          lifecycle:
            # Clients learn that this pod is terminating before it stops serving.
            preStop: {sleep: {seconds: 5}}
          {{- else }}
          {{- with .metrics }}
          ports:
            - {name: metrics, containerPort: {{ . }}}
          {{- end }}
          startupProbe: {{- include "windtunnel.livenessProbe" . | nindent 12 }}
            periodSeconds: 5
            timeoutSeconds: 10
            failureThreshold: 24
          readinessProbe: {{- include "windtunnel.livenessProbe" . | nindent 12 }}
            periodSeconds: 30
            timeoutSeconds: 10
          livenessProbe: {{- include "windtunnel.livenessProbe" . | nindent 12 }}
            periodSeconds: 30
            timeoutSeconds: 10
            failureThreshold: 4
          {{- end }}
          securityContext: {{- include "windtunnel.containerSecurity" . | nindent 12 }}
          resources: {{- toYaml $v.resources | nindent 12 }}
          volumeMounts:
            - {name: home, mountPath: {{ include "windtunnel.setting" (dict "root" .root "name" "home") }}}
            - {name: tmp, mountPath: /tmp}
            - {name: executors, mountPath: /etc/windtunnel/executors, readOnly: true}
            {{- if .root.Values.connectionsSecret }}
            - {name: connections, mountPath: /etc/windtunnel/connections, readOnly: true}
            {{- end }}
            {{- if .root.Values.identityProvidersSecret }}
            - {name: identity-providers, mountPath: /etc/windtunnel/identity-providers, readOnly: true}
            {{- end }}
            {{- with .mounts }}
            {{- . | nindent 12 }}
            {{- end }}
      volumes:
        - {name: home, emptyDir: {sizeLimit: {{ $v.scratch | default "10Gi" }}}}
        - {name: tmp, emptyDir: {sizeLimit: 4Gi}}
        - {name: executors, configMap: {name: {{ $full }}-executors}}
        {{- with .root.Values.connectionsSecret }}
        # The platform requires that only the owner can read this file.
        - {name: connections, secret: {secretName: {{ . }}, defaultMode: 0400}}
        {{- end }}
        {{- with .root.Values.identityProvidersSecret }}
        - {name: identity-providers, secret: {secretName: {{ . }}, defaultMode: 0400}}
        {{- end }}
        {{- with .volumes }}
        {{- . | nindent 8 }}
        {{- end }}
{{- include "windtunnel.budget" . }}
{{- include "windtunnel.scaling" . }}
{{- end }}

{{- define "windtunnel.budget" }}
{{- if .values.disruption }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {{- include "windtunnel.meta" . | nindent 2 }}
spec:
  {{- toYaml .values.disruption | nindent 2 }}
  unhealthyPodEvictionPolicy: AlwaysAllow
  selector:
    matchLabels: {{- include "windtunnel.selector" . | nindent 6 }}
{{- end }}
{{- end }}

{{- define "windtunnel.scaling" }}
{{- with .values.autoscaling }}
{{- if .enabled }}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {{- include "windtunnel.meta" $ | nindent 2 }}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: {{ include "windtunnel.fullname" $.root }}-{{ $.component }}}
  minReplicas: {{ .minReplicas }}
  maxReplicas: {{ .maxReplicas }}
  metrics:
    - type: Resource
      resource: {name: cpu, target: {type: Utilization, averageUtilization: {{ .cpuPercent }}}}
  behavior:
    # Streams can last for hours, and removing a pod interrupts them.
    scaleDown: {stabilizationWindowSeconds: 600}
{{- end }}
{{- end }}
{{- end }}
