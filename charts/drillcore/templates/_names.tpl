{{/* Names, labels and references that several manifests share. */}}

{{- define "drillcore.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "drillcore.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains (include "drillcore.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "drillcore.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Name of a cluster-scoped object: two releases of one name in two namespaces do not meet. */}}
{{- define "drillcore.clusterName" -}}
{{- printf "%s:%s" .Release.Namespace (include "drillcore.fullname" .) -}}
{{- end -}}

{{- define "drillcore.selectorLabels" -}}
app.kubernetes.io/name: {{ include "drillcore.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "drillcore.labels" -}}
{{ include "drillcore.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* One of .Values.images with its tag or digest: a dict of root and image. */}}
{{- define "drillcore.image" -}}
{{- if .image.digest -}}
{{- printf "%s@%s" .image.repository .image.digest -}}
{{- else -}}
{{- printf "%s:%s" .image.repository (.image.tag | default .root.Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{- define "drillcore.scheme" -}}
{{- if .Values.api.tls.secretName }}https{{ else }}http{{ end -}}
{{- end -}}

{{- define "drillcore.apiUrl" -}}
{{- if .Values.api.advertiseUrl -}}
{{- .Values.api.advertiseUrl -}}
{{- else -}}
{{- printf "%s://%s-api.%s.svc" (include "drillcore.scheme" .) (include "drillcore.fullname" .) .Release.Namespace -}}
{{- end -}}
{{- end -}}

{{- define "drillcore.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{- define "drillcore.podSecurity" -}}
runAsNonRoot: true
{{- if .Values.operator.runAsUser }}
runAsUser: {{ .Values.operator.runAsUser | int64 }}
{{- end }}
seccompProfile:
  type: RuntimeDefault
{{- end -}}
