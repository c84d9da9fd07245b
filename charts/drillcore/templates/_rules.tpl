{{/* What the operator may do in a namespace that it serves. docs/rbac.md gives the reason for each verb. */}}
{{- define "drillcore.rules" -}}
- apiGroups: [drillcore.dev]
  resources: [extractionjobs]
  verbs: [get, list, watch, delete]
- apiGroups: [drillcore.dev]
  resources: [extractionjobs/status]
  verbs: [patch]
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [pods]
  verbs: [list]
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [get]
- apiGroups: [""]
  resources: [events]
  verbs: [get, list, create, patch]
{{- if .Values.kueue.enabled }}
- apiGroups: [kueue.x-k8s.io]
  resources: [workloads]
  verbs: [list, patch]
{{- end }}
{{- end -}}
