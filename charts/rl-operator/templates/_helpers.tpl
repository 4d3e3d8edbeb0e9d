{{- define "rl-operator.fullname" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{ .Release.Name | trunc 45 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 45 | trimSuffix "-" }}
{{- end -}}
{{- end -}}

{{/* The labels by which a Deployment selects its pods. Takes (list $ "component"). */}}
{{- define "rl-operator.selector" -}}
{{- $root := index . 0 -}}
app.kubernetes.io/name: {{ $root.Chart.Name }}
app.kubernetes.io/instance: {{ $root.Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* Labels of every object. Takes (list $ "component"). */}}
{{- define "rl-operator.labels" -}}
{{- $root := index . 0 -}}
{{ include "rl-operator.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "rl-operator.image" -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag }}{{ end }}
{{- end -}}

{{/* The only namespace that is served; empty: all of them. */}}
{{- define "rl-operator.served" -}}
{{ if .Values.scope.namespaces }}{{ first .Values.scope.namespaces }}{{ end }}
{{- end -}}

{{/* Who may read RLRuntimes and catalogs, as subjects. */}}
{{- define "rl-operator.readers" -}}
{{- range .Values.authenticatedReaders.groups }}
- {apiGroup: rbac.authorization.k8s.io, kind: Group, name: {{ quote . }}}
{{- end }}
{{- end -}}

{{/* What Pod Security's level `restricted` requires: of pods ... */}}
{{- define "rl-operator.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{/* ... and of containers. */}}
{{- define "rl-operator.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* Where pods run, and how their images are pulled. */}}
{{- define "rl-operator.placement" -}}
{{- range $field := list "imagePullSecrets" "nodeSelector" "tolerations" "affinity" "priorityClassName" }}
{{- with index $.Values $field }}
{{ $field }}: {{ toJson . }}
{{- end }}
{{- end }}
{{- end -}}
