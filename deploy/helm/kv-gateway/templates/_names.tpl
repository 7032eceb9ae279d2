{{- define "kv-gateway.name" -}}
{{ .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "kv-gateway.fullname" -}}
{{- $name := include "kv-gateway.name" . -}}
{{- if .Values.fullnameOverride -}}
{{ .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains $name .Release.Name -}}
{{ .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" }}
{{- end -}}
{{- end }}

{{- define "kv-gateway.serviceAccount" -}}
{{ .Values.serviceAccount.name | default (include "kv-gateway.fullname" .) }}
{{- end }}

{{- define "kv-gateway.selector" -}}
app.kubernetes.io/name: {{ include "kv-gateway.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "kv-gateway.labels" -}}
{{ include "kv-gateway.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/component: {{ .Component | default "gateway" }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "kv-gateway.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- /* The namespaces of the services whose endpoints are workers, each once, as JSON. */ -}}
{{- define "kv-gateway.namespaces" -}}
{{- $found := list -}}
{{- range .Values.workers.services -}}
{{- $found = append $found (.namespace | default $.Release.Namespace) -}}
{{- end -}}
{{ $found | uniq | toJson }}
{{- end }}

{{- /* What a container may do: nothing but run. */ -}}
{{- define "kv-gateway.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{- define "kv-gateway.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile:
  type: RuntimeDefault
{{- end }}
