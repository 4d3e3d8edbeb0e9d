{{- define "rl-runtimes.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "rl-runtimes.image" -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag }}{{ end }}
{{- end -}}

{{/* Removes every null field from a map and its nested maps. */}}
{{- define "rl-runtimes.dropNulls" -}}
{{- $map := . -}}
{{- range $key, $value := $map -}}
{{- if kindIs "invalid" $value -}}{{- $_ := unset $map $key -}}{{- end -}}
{{- if kindIs "map" $value -}}{{- include "rl-runtimes.dropNulls" $value -}}{{- end -}}
{{- end -}}
{{- end -}}
