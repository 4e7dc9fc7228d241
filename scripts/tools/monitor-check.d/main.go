// Monitor-check reads a ServiceMonitor, a PodMonitor or a PrometheusRule as JSON from standard input and holds it to the
// Prometheus operator's own types: unknown fields are errors.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
)

func check(text []byte) error {
	var named struct{ APIVersion, Kind string }
	if err := json.Unmarshal(text, &named); err != nil {
		return err
	}
	kinds := map[string]any{
		"ServiceMonitor": &monitoring.ServiceMonitor{},
		"PodMonitor":     &monitoring.PodMonitor{},
		"PrometheusRule": &monitoring.PrometheusRule{},
	}
	target, known := kinds[named.Kind]
	if !known || named.APIVersion != monitoring.SchemeGroupVersion.String() {
		return fmt.Errorf("no monitor: %s %s", named.APIVersion, named.Kind)
	}
	strict := json.NewDecoder(bytes.NewReader(text))
	strict.DisallowUnknownFields()
	return strict.Decode(target)
}

func main() {
	text, err := io.ReadAll(os.Stdin)
	if err == nil {
		err = check(text)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
