// Drives a model file from submission to results with the Go client that openapi-generator writes.
// Arguments: the platform's URL and the model file. Prints what the platform answered, as JSON.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"windtunnel/clients/openapi-generator/windtunnel"
)

func must[T any](value T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return value
}

func main() {
	ctx := context.Background()
	configuration := windtunnel.NewConfiguration()
	configuration.Servers = windtunnel.ServerConfigurations{{URL: os.Args[1]}}
	client := windtunnel.NewAPIClient(configuration)
	// the client closes a file when it has sent it
	model := func() *os.File { return must(os.Open(os.Args[2])) }

	check, _, err := client.SubmissionsAPI.CheckForm(ctx).Dataset("noop").Model(model()).Execute()
	must(check, err)
	started := time.Now()
	created, _, err := client.SubmissionsAPI.SubmitForm(ctx).Dataset("noop").Model(model()).
		Scenarios(`{"tasks": [3, 5]}`).Repeat(2).Prefer("wait=120").Execute()
	must(created, err)
	file, _, err := client.ResultsAPI.GetSimulationResults(ctx, created.Id).Execute()
	must(file, err)
	statuses := []string{}
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var row windtunnel.Result
		must(0, json.Unmarshal(lines.Bytes(), &row))
		statuses = append(statuses, row.Status)
	}
	seconds := time.Since(started).Seconds()
	table, _, err := client.ResultsAPI.GetSimulationResults(ctx, created.Id).Format("csv").Execute()
	csv := must(io.ReadAll(must(table, err)))
	summary, _, err := client.SimulationsAPI.GetSimulationSummary(ctx, created.Id).Execute()
	must(summary, err)
	stream, _, err := client.ResultsAPI.WatchSimulationEvents(ctx, created.Id).Execute()
	events := string(must(io.ReadAll(must(stream, err))))
	archive, _, err := client.ArtifactsAPI.GetSimulationArchive(ctx, created.Id).Execute()
	magic := make([]byte, 2)
	must(io.ReadFull(must(archive, err), magic))
	for _, kept := range []*os.File{file, table, stream, archive} { // temporary files of the client
		must(0, os.Remove(kept.Name()))
	}

	submission := windtunnel.NewSubmission("noop")
	submission.SetModel(created.Model.Name)
	submission.SetScenarios(windtunnel.ScenarioSelection{Scenarios: &windtunnel.Scenarios{Range: []int64{0, 3}}})
	again, _, err := client.SimulationsAPI.CreateSimulation(ctx).Submission(*submission).Prefer("wait=120").Execute()
	must(again, err)
	checked, _, err := client.SubmissionsAPI.CheckSubmission(ctx).Submission(*submission).Execute()
	must(checked, err)
	submission.Dataset = "nop"
	_, _, err = client.SimulationsAPI.CreateSimulation(ctx).Submission(*submission).Execute()
	var refusal *windtunnel.GenericOpenAPIError
	if !errors.As(err, &refusal) {
		must(0, fmt.Errorf("an unknown dataset gives no problem: %v", err))
	}
	problem := refusal.Model().(windtunnel.Problem)

	answers := map[string]any{
		"fits":      []bool{check.Fits, checked.Fits},
		"id":        created.Id,
		"seconds":   seconds,
		"state":     created.State,
		"statuses":  statuses,
		"csv_lines": strings.Count(string(csv), "\n"),
		"summary":   summary.Tasks,
		"events":    strings.Count(events, "event: state"),
		"archive":   string(magic),
		"again":     []any{again.Id, again.State, again.Tasks.Done},
		"problem":   []any{problem.Status, problem.Type},
	}
	fmt.Println(string(must(json.Marshal(answers))))
}
